// Oobleck: pipelines of different depth from templates that were planned beforehand, at least
// f + 1 replicas of every layer. A failure costs the iteration in flight and a short
// reconfiguration: the hit pipeline goes on from a smaller template, borrows a node from a larger
// pipeline or is merged with another one, layers are copied from replicas, and the batch is split
// anew. [Jang et al., SOSP 2023, sections 4 and 5; public code SymbioticLab/Oobleck]
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/elastic.h"
#include "planners/recovery/kit/unit_chains.h"
#include "planners/recovery/oobleck/reconfigure.h"
#include "planners/recovery/oobleck/templates.h"

namespace orrery::planners {

extern const RecoveryEntry kOobleckRecovery;

namespace {

struct OobleckSettings {
  Phases phases = {
      .detect = {{0},
                 "Seconds until a lost device is noticed where the trace does not say; 0: "
                 "contained in the reconfiguration, as measured [Oobleck]."},
      .detect_exception = {{0}, "As detect, for failed processes [Oobleck]."},
      .decide = {{0}, "Seconds of planning; 0: templates are planned beforehand [Oobleck, 4]."},
      .reinitialize = {{-1},
                       "Seconds from a failure until training goes on, without the copies of "
                       "layers; -1: by the "
                       "number of parameters, 2 up to 0.34 billion, 6 at 2.7, 10 from 6.7 billion "
                       "on, linear in "
                       "between [constants of Oobleck's simulator, public code]."},
      .restart = kRestart};
  int fault_threshold = 1;
  int micro_batch_size = 0;
  OptionalInterval checkpoint_interval;
};

void describe(config::Visitor& v, OobleckSettings& s) {
  describe_phases(v, s.phases);
  v.optional("fault_threshold", s.fault_threshold,
             "f: failures at once that never need a checkpoint; f + 1 pipelines at least. "
             "[Oobleck 4.1.1]");
  v.between("fault_threshold", s.fault_threshold, 0, 1000);
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples of a micro-batch; 0: the size with the best first plan.");
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  v.optional(
      "checkpoint_interval", s.checkpoint_interval,
      "Between checkpoints to the cloud: auto and own (Young's), young, daly, availability, "
      "tuned, seconds, or never; they are needed only when more than f replicas are lost at once.");
}

/// Linear between the sizes that Oobleck's simulator has. Deviation: it has one number a model.
double reconfiguration_seconds(const models::Workload& workload) {
  struct Known {
    double billions;
    double seconds;
  };
  constexpr Known kKnown[] = {{0.34, 2}, {2.7, 6}, {6.7, 10}};  // BERT-large, GPT-3 2.7B, 6.7B.
  const double billions = static_cast<double>(models::parameters(workload)) * 1e-9;
  if (billions <= kKnown[0].billions) return kKnown[0].seconds;
  for (std::size_t i = 1; i < std::size(kKnown); ++i) {
    const Known& a = kKnown[i - 1];
    const Known& b = kKnown[i];
    if (billions > b.billions) continue;
    return a.seconds +
           (b.seconds - a.seconds) * (billions - a.billions) / (b.billions - a.billions);
  }
  return kKnown[2].seconds;
}

class Oobleck final : public ElasticPolicy {
 public:
  using Settings = OobleckSettings;
  static MadePolicy make(const PolicyInput& input, Settings s);
  Oobleck(const PolicyInput& input, const Settings& s, std::shared_ptr<const UnitChains> chains,
          OobleckTemplates templates)
      : ElasticPolicy(input, s.phases, s.checkpoint_interval),
        chains_(std::move(chains)),
        templates_(std::move(templates)) {}

  std::string name() const override { return kOobleckRecovery.name; }

 protected:
  FoundPlan fresh(const std::vector<DeviceId>& live) const override {
    const std::vector<Unit> nodes = cells(live);
    const std::vector<int> sizes = sizes_for(static_cast<int>(nodes.size()));
    if (sizes.empty()) return too_few(nodes.size());
    return plan(assign_nodes(sizes, {}, nodes));
  }

  FoundChange shrink(const models::JobState& state,
                     const std::vector<DeviceId>& live) const override {
    const std::vector<Unit> nodes = cells(live);
    const std::vector<NodeList> before = pipelines_of(*state.plan, nodes);
    if (state.training) {
      OobleckReconfiguration changed = reconfigure(
          before, spares(before, nodes), [&](int n) { return templates_.at(n) != nullptr; },
          templates_.fewest());
      if (changed.pipelines.empty()) return too_few(nodes.size());
      return finish(std::move(changed.pipelines), changed.what);
    }
    const std::vector<int> sizes = sizes_for(static_cast<int>(nodes.size()));
    if (sizes.empty()) return too_few(nodes.size());
    return finish(assign_nodes(sizes, before, nodes), "instantiated anew");
  }

  std::optional<ElasticChange> grow(const models::JobState& state,
                                    const std::vector<DeviceId>& live) const override {
    const std::vector<Unit> nodes = cells(live);
    const std::vector<NodeList> before = pipelines_of(*state.plan, nodes);
    std::vector<int> old_sizes;
    for (const NodeList& pipeline : before) old_sizes.push_back(static_cast<int>(pipeline.size()));
    const bool own = std::all_of(old_sizes.begin(), old_sizes.end(),
                                 [&](int size) { return templates_.at(size) != nullptr; });
    const std::vector<int> sizes = sizes_for(static_cast<int>(nodes.size()));
    if (sizes.empty() || (own && templates_.seconds(sizes) >= templates_.seconds(old_sizes))) {
      return std::nullopt;
    }
    auto change = finish(assign_nodes(sizes, before, nodes), "more nodes: instantiated anew");
    if (auto* found = std::get_if<ElasticChange>(&change)) return std::move(*found);
    return std::nullopt;
  }

 private:
  std::vector<Unit> cells(const std::vector<DeviceId>& live) const {
    return uniform_cells(input().cluster, live, chains_->per_node());
  }

  /// Best sizes; remembered.
  const std::vector<int>& sizes_for(int nodes) const {
    const auto [entry, fresh] = sizes_.try_emplace(nodes);
    if (fresh) entry->second = templates_.sizes(nodes);
    return entry->second;
  }

  models::Infeasible too_few(std::size_t nodes) const {
    return {"number of nodes", fmt::format("{} whole nodes live, the smallest template has {}",
                                           nodes, templates_.fewest())};
  }

  FoundChange finish(std::vector<NodeList> pipelines, std::string what) const {
    std::map<std::size_t, int, std::greater<>> counts;  // Pipelines by number of nodes.
    for (const NodeList& pipeline : pipelines) ++counts[pipeline.size()];
    std::vector<std::string> sizes;
    for (const auto& [nodes, count] : counts) sizes.push_back(fmt::format("{} x {}", count, nodes));
    auto made = plan(std::move(pipelines));
    if (auto* none = std::get_if<models::Infeasible>(&made)) return std::move(*none);
    return ElasticChange{std::get<models::PlanPointer>(std::move(made)),
                         fmt::format("{}: pipelines of {} nodes", what, fmt::join(sizes, " + "))};
  }

  FoundPlan plan(std::vector<NodeList> pipelines) const {
    std::vector<UnitPipeline> laid_out;
    for (const NodeList& nodes : pipelines) {
      UnitPipeline pipeline{templates_.at(static_cast<int>(nodes.size())), {}};
      const auto width = static_cast<std::ptrdiff_t>(pipeline.chain->shape.width);
      for (const Unit& node : nodes) {
        for (auto at = node.begin(); at != node.end(); at += width) {
          pipeline.units.emplace_back(at, at + width);
        }
      }
      laid_out.push_back(std::move(pipeline));
    }
    std::optional<ir::Plan> plan = plan_of(*chains_, laid_out, kOobleckRecovery.name);
    if (!plan) {
      return models::Infeasible{"global batch",
                                fmt::format("fewer than {} micro-batches", pipelines.size())};
    }
    const std::string problem = problem_of(input(), *plan);
    if (!problem.empty()) return models::Infeasible{"plan", problem};
    return std::make_shared<const ir::Plan>(std::move(*plan));
  }

  std::shared_ptr<const UnitChains> chains_;
  OobleckTemplates templates_;
  mutable std::map<int, std::vector<int>> sizes_;
};

/// The size of micro-batches whose first instantiation is fastest.
std::optional<OobleckTemplates> best_templates(const UnitChains& chains, int nodes, int threshold,
                                               int wanted, int& fewest) {
  std::optional<OobleckTemplates> best;
  double least = 0;
  for (const int size : chains.micro_batch_sizes()) {
    if (wanted != 0 && size != wanted) continue;
    OobleckTemplates templates(chains, nodes, threshold, size);
    if (templates.fewest() > 0 && (fewest == 0 || templates.fewest() < fewest)) {
      fewest = templates.fewest();
    }
    const std::vector<int> sizes = templates.sizes(nodes);
    if (static_cast<int>(sizes.size()) < threshold + 1) continue;
    const double seconds = templates.seconds(sizes);
    if (best && seconds >= least) continue;
    least = seconds;
    best = std::move(templates);
  }
  return best;
}

MadePolicy Oobleck::make(const PolicyInput& input, Settings s) {
  if (auto problem = zero_off_problem(input.job, "replicas")) return *problem;
  Seconds& stall = s.phases.reinitialize.duration;
  if (stall.value < 0) stall = {reconfiguration_seconds(input.workload)};
  auto chains = std::make_shared<const UnitChains>(input, CutCriterion::oobleck);
  const int nodes = input.cluster.size() / chains->per_node();
  int fewest = 0;
  std::optional<OobleckTemplates> templates =
      best_templates(*chains, nodes, s.fault_threshold, s.micro_batch_size, fewest);
  if (!templates) {
    if (fewest == 0) {
      return models::Infeasible{
          "device memory or number of layers",
          fmt::format("no pipeline over 1 to {} nodes holds the model", nodes)};
    }
    return models::Infeasible{
        "fault_threshold",
        fmt::format("{} pipelines of at least {} nodes need more than the {} nodes or than the "
                    "micro-batches that there are",
                    s.fault_threshold + 1, fewest, nodes)};
  }
  return std::make_unique<Oobleck>(input, s, std::move(chains), std::move(*templates));
}

}  // namespace

constinit const RecoveryEntry kOobleckRecovery = recovery_entry<Oobleck>({
    .name = "oobleck",
    .source = "Oobleck (Jang et al., SOSP 2023, sections 4 and 5)",
    .recovers = "the hit pipeline goes on from a smaller template, borrows nodes or is merged; "
                "layers come from replicas, the batch is split anew",
    .needs = "ZeRO off; f + 1 pipelines at least; whole nodes",
    .loses = "the iteration in flight; what came after the last checkpoint once all replicas of a "
             "layer are lost",
    .slow = kKeepsSlowDevices,
    .deviations = "all stages of a template have the same number of GPUs, a tensor-parallel group, "
                  "where the paper lets them differ inside a node and shards their states; "
                  "reconfiguration takes a time interpolated between model sizes, where Oobleck's "
                  "simulator has one number a model",
});

}  // namespace orrery::planners
