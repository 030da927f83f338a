#include "planners/hexiscale/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/partition_dp.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {
namespace {

/// Relative difference of estimates below which plans count as the same.
constexpr double kSameEstimate = 1e-9;

}  // namespace

HexiscaleSearch::Line::Line(const PlannerInput& input, const HexiscaleCosts& costs,
                            const HexiscaleSettings& all, int degree, int rounds,
                            int most_pipelines)
    : settings(all),
      builder(input.cluster, costs, settings),
      history(settings, rounds, most_pipelines, static_cast<int>(input.devices.size()),
              costs.layers()) {
  settings.tensor_parallel = degree;
}

HexiscaleSearch::HexiscaleSearch(const PlannerInput& input, const HexiscaleSettings& settings,
                                 const PlannerEntry& entry)
    : input_(input),
      settings_(settings),
      entry_(entry),
      costs_(input, settings),
      graph_(device_graph(costs_, input.devices)),
      micro_batches_(static_cast<int>(input.job.global_batch / settings.micro_batch_size)) {
  if (settings.edges == EdgeWeight::inverse_public) {
    for (double& weight : graph_.edge_weight) weight = weight > 0 ? std::round(10 / weight) : 0;
  }
}

std::optional<models::Infeasible> HexiscaleSearch::refuse() const {
  if (input_.workload.shape.hidden == 0 || input_.workload.shape.heads == 0) {
    return models::Infeasible{"cost model", fmt::format("HexiScale's cost model knows transformers "
                                                        "only, {} is none",
                                                        input_.workload.name)};
  }
  if (input_.job.global_batch % settings_.micro_batch_size != 0 ||
      settings_.micro_batch_size > input_.job.allowed.max_micro_batch_size) {
    return models::Infeasible{
        "micro-batch size",
        fmt::format("the job's batch of {} and its limit of {} do not allow micro-batches of {}",
                    input_.job.global_batch, input_.job.allowed.max_micro_batch_size,
                    settings_.micro_batch_size)};
  }
  if (models::plain_schedules(input_.job.allowed.schedules).empty()) {
    return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
  }
  if (costs_.most_pipelines() == 0) {
    Bytes have;
    for (const DeviceId device : input_.devices) have += input_.cluster.gpu(device).memory;
    const Bytes need{static_cast<double>(models::parameters(input_.workload)) *
                     input_.job.state_bytes.total()};
    return models::Infeasible{
        "device memory",
        fmt::format("weights, gradients and optimizer states of {} need {:.1f} GiB, the {} devices "
                    "have {:.1f} GiB, their contexts included",
                    input_.workload.name, need / 1_GiB, input_.devices.size(), have / 1_GiB)};
  }
  return std::nullopt;
}

void HexiscaleSearch::begin(int rounds) {
  const int most = std::min(costs_.most_pipelines(), micro_batches_);
  lines_.emplace_back(input_, costs_, settings_, settings_.tensor_parallel, rounds, most);
  const bool free = settings_.tensor_parallel == 0 && settings_.candidates == Candidates::all;
  if (!free || settings_.evaluate_top == 1) return;
  std::vector<int> degrees;
  for (const int degree : costs_.tensor_degrees()) {
    if (floor_power_of_two(degree) == degree) degrees.push_back(degree);
  }
  for (const int degree : degrees) {
    lines_.emplace_back(input_, costs_, settings_, degree, rounds, most);
  }
  report_.notes.push_back(fmt::format(
      "finalists of searches with one tensor-parallel degree, {}, stand beside those of "
      "the free search",
      fmt::join(degrees, ", ")));
}

const HexiscaleSearch::Split& HexiscaleSearch::split(int pipelines, CutObjective cut, Rng rng,
                                                     std::vector<Split>& known) const {
  for (const Split& split : known) {
    if (split.pipelines == pipelines && split.cut == cut) return split;
  }
  std::vector<int> part(input_.devices.size(), 0);
  if (pipelines > 1) {
    PartitionOptions options;
    options.objective = cut;
    options.max_imbalance = settings_.max_imbalance;
    options.starts = 2;
    part = parts_of(graph_, pipelines, options, settings_, rng);
  }
  std::vector<DeviceList> parts(pipelines);
  for (std::size_t i = 0; i < part.size(); ++i) {
    parts[part[i]].push_back(input_.devices[i]);
  }
  return known.emplace_back(Split{pipelines, cut, std::move(parts), rng});
}

std::vector<int> HexiscaleSearch::share_batch(const std::vector<PipelineDraft>& drafts) const {
  std::vector<PipelineRate> rates;
  for (const PipelineDraft& draft : drafts) {
    // Equal pipelines take equal shares.
    rates.push_back(settings_.batches == BatchRule::balanced ? draft.rate : PipelineRate{1_s, 1_s});
  }
  return *balance_micro_batches(rates, micro_batches_);
}

/// Values of k_i: [layout][pipeline]. The uniform rule draws one level for all pipelines, so that
/// equal pipelines are split equally; its first layout has one group in each.
std::vector<std::vector<int>> HexiscaleSearch::group_counts(const Line& line,
                                                            const std::vector<DeviceList>& parts,
                                                            Rng& rng) const {
  std::vector<std::vector<int>> layouts;
  for (int i = 0; i < settings_.group_counts; ++i) {
    const double level = i == 0 ? 0 : rng.uniform();
    std::vector<int> counts;
    for (const DeviceList& part : parts) {
      if (settings_.group_count == GroupCount::uniform) {
        counts.push_back(1 + static_cast<int>(level * line.builder.most_groups(part)));
      } else {
        const int drawn = 1 + (rng.bernoulli(0.2) ? 1 : 0) + (rng.bernoulli(0.2) ? 1 : 0);
        counts.push_back(std::min(drawn, static_cast<int>(part.size())));
      }
    }
    if (std::find(layouts.begin(), layouts.end(), counts) == layouts.end()) {
      layouts.push_back(std::move(counts));
    }
  }
  return layouts;
}

/// Micro-batches in proportion to compute power, before anything is known of the pipelines.
std::vector<int> HexiscaleSearch::expected_shares(const std::vector<DeviceList>& parts) const {
  std::vector<double> power;
  for (const DeviceList& part : parts) {
    power.push_back(0);
    for (const DeviceId device : part) power.back() += costs_.power(device);
  }
  if (settings_.batches == BatchRule::equal_public) std::fill(power.begin(), power.end(), 1.0);
  return *balance_layers(micro_batches_, power);
}

/// The pipelines of each layout in which all hold the layers, and last those that take for each
/// part its fastest pipeline of all layouts.
std::vector<std::vector<PipelineDraft>> HexiscaleSearch::lay_out(
    const Line& line, const std::vector<DeviceList>& parts, Rng& rng) {
  const std::vector<int> expected = expected_shares(parts);
  std::vector<std::optional<PipelineDraft>> fastest(parts.size());
  std::vector<std::vector<PipelineDraft>> layouts;
  for (const std::vector<int>& counts : group_counts(line, parts, rng)) {
    std::vector<PipelineDraft> drafts;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const PipelineTask task{parts[i], static_cast<int>(parts.size()), expected[i]};
      auto draft = line.builder.build(task, counts[i], rng, report_.plans_examined);
      if (!draft) continue;
      drafts.push_back(*draft);
      if (!fastest[i] || draft->time(expected[i]) < fastest[i]->time(expected[i])) {
        fastest[i] = std::move(draft);
      }
    }
    if (drafts.size() == parts.size()) layouts.push_back(std::move(drafts));
  }
  std::vector<PipelineDraft> best;
  for (auto& draft : fastest) {
    if (draft) best.push_back(std::move(*draft));
  }
  if (best.size() == parts.size()) layouts.push_back(std::move(best));
  return layouts;
}

ir::Plan HexiscaleSearch::finish_layout(const Line& line, std::vector<PipelineDraft> drafts) const {
  const std::vector<int> micro_batches = share_batch(drafts);
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    auto again =
        line.builder.assign(drafts[i].stages, static_cast<int>(drafts.size()), micro_batches[i]);
    if (again) drafts[i] = std::move(*again);
  }
  return assemble(drafts, share_batch(drafts));
}

ir::Plan HexiscaleSearch::assemble(const std::vector<PipelineDraft>& drafts,
                                   const std::vector<int>& micro_batches) const {
  ir::Plan plan;
  plan.schedule = costs_.schedule();
  plan.communication.activation_transfer = ir::ActivationTransfer::leader_broadcast;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    ir::Pipeline chain;
    chain.micro_batches = micro_batches[i];
    chain.micro_batch_size = settings_.micro_batch_size;
    int first = 0;
    for (std::size_t s = 0; s < drafts[i].stages.size(); ++s) {
      const DeviceList& devices = drafts[i].stages[s];
      chain.stages.push_back(stage_of_layers(
          input_.workload, first, drafts[i].layers[s],
          tensor_groups(devices, static_cast<int>(devices.size()), settings_.micro_batch_size),
          costs_.recompute(), costs_.zero_stage()));
      first += drafts[i].layers[s];
    }
    plan.pipelines.push_back(std::move(chain));
  }
  return plan;
}

/// Plans whose estimates agree to the last digits count as one: they differ in the names of equal
/// machines, and the evaluator should see different plans.
void HexiscaleSearch::keep(Line& line, ir::Plan plan, Seconds estimate) const {
  std::vector<RankedPlan>& ranking = line.ranking;
  const std::size_t most = std::max(16, 4 * settings_.evaluate_top);
  const auto place = std::lower_bound(
      ranking.begin(), ranking.end(), (1 - kSameEstimate) * estimate,
      [](const RankedPlan& ranked, Seconds value) { return ranked.estimate < value; });
  if (place != ranking.end() && place->estimate <= (1 + kSameEstimate) * estimate) return;
  ranking.insert(place, {std::move(plan), estimate});
  if (ranking.size() > most) ranking.pop_back();
}

/// The paper's estimate, or nothing when the plan does not fit.
std::optional<models::HexiscaleEstimate> HexiscaleSearch::judge(Line& line, ir::Plan plan) {
  const ir::MemoryVerdict verdict =
      models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile);
  models::HexiscaleEstimate estimate = costs_.estimate(plan);
  if (!verdict.fits()) {
    nearest_ = verdict.explain();
    forbid_by_memory(report_, estimate.iteration, [&] {
      return fmt::format("{}: {}", in_words(plan, input_.workload), nearest_);
    });
    return std::nullopt;
  }
  keep(line, std::move(plan), estimate.iteration);
  return estimate;
}

void HexiscaleSearch::round(int number, Line& line, std::vector<Split>& splits) {
  Rng rng = Rng(input_.seed).fork(static_cast<std::uint64_t>(number));
  const int pipelines = line.history.pipelines(number, rng);
  const CutObjective cut = line.history.cut(pipelines);
  const Split& devices = split(pipelines, cut, rng, splits);
  rng = devices.after;
  std::optional<models::HexiscaleEstimate> best;
  std::vector<ir::Plan> seen;
  for (std::vector<PipelineDraft>& drafts : lay_out(line, devices.parts, rng)) {
    ir::Plan plan = finish_layout(line, std::move(drafts));
    if (std::find(seen.begin(), seen.end(), plan) != seen.end()) continue;
    seen.push_back(plan);
    const auto estimate = judge(line, std::move(plan));
    if (estimate && (!best || estimate->iteration < best->iteration)) best = estimate;
  }
  // No part of the devices holds the layers: not even a plan to estimate.
  if (seen.empty() && &line == &lines_.front()) ++report_.rejected_by_memory;
  line.history.add(pipelines, cut, best);
}

PlannerResult HexiscaleSearch::finish() {
  if (canceled(input_)) report_.complete = false;
  const bool none = std::all_of(lines_.begin(), lines_.end(),
                                [](const Line& line) { return line.ranking.empty(); });
  if (none && report_.work == 0) {
    return {models::Infeasible{"search", "it was ended before the first round"}, report_};
  }
  if (none) {
    // Without a plan that memory refused, layers may be too few for the stages, or memory too small
    // for one layer of a stage.
    const bool refused = !nearest_.empty();
    const std::string why =
        refused ? nearest_
                : fmt::format(
                      "no pipelines over all {} devices hold the {} layers, at least one "
                      "in each stage and no more than fit there",
                      input_.devices.size(), costs_.layers());
    return {models::Infeasible{refused ? "device memory" : "layers of stages",
                               fmt::format("in {} rounds with up to {} pipelines: {}", report_.work,
                                           std::min(costs_.most_pipelines(), micro_batches_), why)},
            report_};
  }
  Ranking ranking(input_);
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    for (RankedPlan& ranked : lines_[i].ranking) {
      std::string words = in_words(ranked.plan, input_.workload);
      ranking.offer(ranked.estimate, std::move(ranked.plan), std::move(words), static_cast<int>(i));
    }
  }
  return ranking.finish(entry_.name, settings_.evaluate_top, report_, {});
}

PlannerResult HexiscaleSearch::run() {
  report_.work_unit = "rounds";
  if (auto refused = refuse()) return {std::move(*refused), report_};
  std::int64_t rounds = settings_.rounds;
  if (input_.work_budget > 0 && input_.work_budget < rounds) {
    rounds = input_.work_budget;
    report_.complete = false;
  }
  begin(static_cast<int>(rounds));
  for (; report_.work < rounds && !canceled(input_); ++report_.work) {
    std::vector<Split> splits;
    splits.reserve(lines_.size());
    for (Line& line : lines_) round(static_cast<int>(report_.work), line, splits);
  }
  if (input_.job.lengths) {
    report_.notes.push_back("the length distribution is ignored: all samples count as the longest");
  }
  return finish();
}

}  // namespace orrery::planners
