#include "sim/iteration/folding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "models/base/id_vector.h"
#include "sim/iteration/inner.h"
#include "sim/iteration/slow_links.h"
#include "sim/iteration/symmetry.h"

namespace orrery::sim {
namespace {

/// Runs until a guess must have proved exact; then the whole program runs.
constexpr int kMostGuesses = 8;

/// From the second guess on flows inside pipelines are also held to meet the steps that they miss
/// by so much of an iteration, doubled with each guess: what one guess finds moves flows a little.
constexpr double kNear = 0.0004;

/// One class more in so many pipelines is less work than another run.
constexpr std::size_t kPipelinesAClass = 16;

Color alone(int pipeline) { return mix(0xa10e, pipeline); }

std::string pack(const std::vector<Symmetry::Meeting>& meetings) {
  static_assert(std::is_trivially_copyable_v<Symmetry::Meeting>);
  std::string bytes(meetings.size() * sizeof(Symmetry::Meeting), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), meetings.data(), bytes.size());
  return bytes;
}

void unpack(std::string_view bytes, std::vector<Symmetry::Meeting>& meetings) {
  const std::size_t before = meetings.size();
  meetings.resize(before + bytes.size() / sizeof(Symmetry::Meeting));
  if (!bytes.empty()) std::memcpy(meetings.data() + before, bytes.data(), bytes.size());
}

}  // namespace

int Folding::built() const {
  int count = 0;
  for (std::size_t p = 0; p < representative.size(); ++p) {
    count += representative[p] == static_cast<int>(p) ? 1 : 0;
  }
  return count;
}

class FoldedIteration::Impl {
 public:
  Impl(const ir::Plan& plan, const models::Cluster& cluster, const models::Topology& topology,
       const models::Workload& workload, const models::Job& job,
       const models::LowerOptions& lower_options, const IterationOptions& options)
      : plan_(plan),
        cluster_(cluster),
        topology_(topology),
        workload_(workload),
        job_(job),
        lower_options_(lower_options),
        crossings_(options.record_links),
        slices_(options.fold == FoldMode::slices),
        mode_(effective_mode(lower_options.collapsed, options.inner)),
        factors_(link_factors(topology, options)),
        path_(path_function(topology, factors_)) {
    if (!may_fold(options)) {
      program = models::lower(plan, cluster, workload, job, lower_options);
      return;
    }
    members_.emplace(plan, cluster);
    IdVector<DeviceId, double> slowdown(cluster.devices.size(), 1.0);
    for (const Straggler& straggler : options.stragglers) {
      slowdown[straggler.device] *= straggler.slowdown;
    }
    const std::optional<models::HostShares> hosts = models::host_shares(plan, cluster);
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      colors_.push_back(
          color_of(pipeline, cluster, *members_, slowdown, hosts ? &*hosts : nullptr));
    }
    for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
      for (const ir::Reroute& reroute : plan.pipelines[p].reroutes) {
        rerouted_.insert({static_cast<int>(p), reroute.to_pipeline});
      }
    }
    alone_ = rerouted_;
    guess_slow_links();
    build();
  }

  std::string find_meetings(const std::vector<FlowInterval>& flows) {
    const double nearness = guesses_ == 0 ? 0 : kNear * std::exp2(guesses_);
    return pack(symmetry_->find_meetings(flows, nearness));
  }
  void fold_again(std::string_view meetings) {
    unpack(meetings, meetings_);
    if (++guesses_ >= kMostGuesses) {
      whole();
    } else if (!refold()) {
      build();
    }
  }

  ir::Program program;
  std::unique_ptr<Folding> folding;
  bool guess_ = false;

 private:
  static bool may_fold(const IterationOptions& options) {
    return options.fold != FoldMode::off && !options.noisy() &&
           options.ring == RingMode::aggregated && !options.record_spans && !options.record_memory;
  }

  /// Builds all pipelines. Flows that start together and meet the same are one all the same.
  void whole() {
    symmetry_.reset();
    folding.reset();
    guess_ = false;
    program = models::lower(plan_, cluster_, workload_, job_, lower_options_, &partial_);
    if (!slices_ || std::none_of(program.transfer_sets.begin(), program.transfer_sets.end(),
                                 [](const auto& transfers) { return transfers.size() > 1; })) {
      return;
    }
    for (std::size_t p = 0; p < colors_.size(); ++p) colors_[p] = alone(static_cast<int>(p));
    Symmetry symmetry({topology_, path_, factors_, *members_, program, partial_, mode_, crossings_,
                       slices_, rerouted_},
                      colors_);
    if (!symmetry.lonely.empty()) return;
    symmetry.refine(Symmetry::Meetings::all, {}, colors_.size());
    folding = symmetry.fold(crossings_);
    if (folding == nullptr) return;
    const auto& pairs = folding->route_of_pair;
    if (std::any_of(pairs.begin(), pairs.end(), [](const auto& one) { return one.second < 0; })) {
      number_ranks();
    } else {
      folding.reset();
    }
  }

  /// take(a, b) for devices of equal position in consecutive stages of a pipeline.
  template <class Take>
  void for_each_hop(int pipeline, Take&& take) const {
    const std::vector<ir::Stage>& stages = plan_.pipelines[pipeline].stages;
    for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
      const std::vector<DeviceId>& from = stages[s].segments.front().groups.front().devices;
      const std::vector<DeviceId>& to = stages[s + 1].segments.front().groups.front().devices;
      for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) take(from[i], to[i]);
    }
  }
  /// A pipeline with a slow link between its stages will be found unlike the others; told apart at
  /// once, it need not be lowered again.
  void guess_slow_links() {
    if (factors_.empty()) return;
    plain_colors_ = colors_;
    for (std::size_t p = 0; p < colors_.size(); ++p) {
      const int pipeline = static_cast<int>(p);
      if (alone_.count(pipeline) > 0) continue;
      for_each_hop(pipeline, [&](DeviceId a, DeviceId b) {
        colors_[p] = mix(colors_[p], path_(a, b).bandwidth.value);
      });
    }
    if (distinct(colors_) == distinct(plain_colors_)) {
      colors_ = std::move(plain_colors_);
      plain_colors_.clear();
    }
    guess_ = !plain_colors_.empty();
  }
  /// What tells them apart must be hops along which they send; else they may be alike.
  bool slow_links_were_wrong(const models::LowerOptions& options) {
    if (plain_colors_.empty()) return false;
    const std::vector<Color> plain = std::exchange(plain_colors_, {});
    std::vector<Color> apart;
    for (std::size_t p = 0; p < colors_.size(); ++p) {
      const int pipeline = static_cast<int>(p);
      if (!options.built[p] || alone_.count(pipeline) > 0) continue;
      Color color = plain[p];
      for_each_hop(pipeline, [&](DeviceId a, DeviceId b) {
        if (symmetry_->sends(pipeline, a, b)) color = mix(color, path_(a, b).bandwidth.value);
      });
      apart.push_back(color);
    }
    if (distinct(apart) == apart.size()) return false;
    colors_ = plain;
    guess_ = false;
    return true;
  }

  /// Lowers one pipeline of each color and refines the colors until each has its pipeline.
  void build() {
    for (;;) {
      for (const int p : alone_) colors_[p] = alone(p);
      models::LowerOptions options = lower_options_;
      options.built.assign(colors_.size(), false);
      std::set<Color> known;
      for (std::size_t p = 0; p < colors_.size(); ++p) {
        options.built[p] = known.insert(colors_[p]).second;
      }
      // Where most pipelines are their own class there is little to save.
      if (known.size() > most_classes()) return whole();
      program = models::lower(plan_, cluster_, workload_, job_, options, &partial_);
      if (!partial_.missing.empty()) {
        if (set_apart(partial_.missing)) continue;
        return whole();
      }
      symmetry_ = std::make_unique<Symmetry>(
          Symmetry::Input{topology_, path_, factors_, *members_, program, partial_, mode_,
                          crossings_, slices_, rerouted_},
          colors_);
      if (slow_links_were_wrong(options)) continue;
      if (!symmetry_->lonely.empty()) {
        if (set_apart(symmetry_->lonely)) continue;
        return whole();
      }
      if (!guess_) {
        const std::vector<Color>& refined =
            symmetry_->refine(Symmetry::Meetings::all, {}, known.size());
        guess_ = distinct(refined) > known.size();
      }
      if (guess_ && expect_meetings(known.size())) continue;
      if (refold()) return;
      if (!symmetry_->lonely.empty() && !set_apart(symmetry_->lonely)) return whole();
    }
  }

  /// With more there is too little to gain.
  std::size_t most_classes() const { return 3 * colors_.size() / 4; }

  /// What will be found anyway is held to meet from the first guess on, if few classes follow: that
  /// saves a run. Whether others must be built.
  bool expect_meetings(std::size_t built) {
    if (std::exchange(expected_, true)) return false;
    std::vector<Symmetry::Meeting> likely = symmetry_->likely_meetings();
    if (likely.empty()) return false;
    const std::size_t more = colors_.size() / kPipelinesAClass;
    std::vector<Color> refined =
        symmetry_->refine(Symmetry::Meetings::found, likely, most_classes());
    const std::size_t classes = distinct(refined);
    if (classes > built + more) {  // Without what is expected they may be as many.
      if (classes > most_classes()) return false;
      const std::size_t least = distinct(symmetry_->refine(Symmetry::Meetings::found, {}, classes));
      if (classes > least + more) return false;
    }
    meetings_ = std::move(likely);
    if (classes > built) colors_ = std::move(refined);
    return classes > built;
  }

  /// Folds the program by the classes that are known now; false: they need other pipelines built.
  bool refold() {
    if (guess_) {
      const std::size_t built = distinct(colors_);
      std::vector<Color> refined =
          symmetry_->refine(Symmetry::Meetings::found, meetings_, most_classes());
      if (distinct(refined) > built) {
        colors_ = std::move(refined);
        return false;
      }
    }
    folding = symmetry_->fold(crossings_);
    if (folding != nullptr) number_ranks();
    return folding != nullptr;
  }

  /// Whether one of them was not apart yet.
  template <class Pipelines>
  bool set_apart(const Pipelines& pipelines) {
    const std::size_t before = alone_.size();
    alone_.insert(pipelines.begin(), pipelines.end());
    return alone_.size() > before;
  }

  /// Ranks stand pipeline by pipeline, those of one class in the same order.
  void number_ranks() {
    std::vector<std::int32_t> first(colors_.size(), -1);
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const auto rank = static_cast<std::int32_t>(r);
      const std::size_t pipeline = program.ranks[r].pipeline;
      if (first[pipeline] < 0) first[pipeline] = rank;
      const std::size_t same = folding->representative[pipeline];
      folding->same_rank.push_back({first[same] + rank - first[pipeline]});
    }
  }

  const ir::Plan& plan_;
  const models::Cluster& cluster_;
  const models::Topology& topology_;
  const models::Workload& workload_;
  const models::Job& job_;
  models::LowerOptions lower_options_;
  bool crossings_;
  bool slices_;
  InnerMode mode_;
  LinkFactors factors_;
  models::PathFunction path_;
  std::optional<Members> members_;
  std::vector<Color> colors_;  ///< By pipeline: one is built of each.
  /// Before guess_slow_links(), until what it supposes is confirmed; else empty.
  std::vector<Color> plain_colors_;
  std::set<int> alone_;  ///< Pipelines with colors of their own.
  /// Those that leave micro-batches to others or take them. No two of them are alike, and they are
  /// late: their flows meet what those of others miss.
  std::set<int> rerouted_;
  models::PartialProgram partial_;
  std::unique_ptr<Symmetry> symmetry_;
  std::vector<Symmetry::Meeting> meetings_;
  int guesses_ = 0;
  bool expected_ = false;  ///< expect_meetings() was asked.
};

FoldedIteration::FoldedIteration(const ir::Plan& plan, const models::Cluster& cluster,
                                 const models::Topology& topology, const models::Workload& workload,
                                 const models::Job& job, const models::LowerOptions& lower_options,
                                 const IterationOptions& options)
    : impl_(
          std::make_unique<Impl>(plan, cluster, topology, workload, job, lower_options, options)) {}
FoldedIteration::~FoldedIteration() = default;

const ir::Program& FoldedIteration::program() const { return impl_->program; }
ir::Program FoldedIteration::take_program() { return std::move(impl_->program); }
std::int64_t FoldedIteration::whole_ops() const {
  const ir::Program& program = impl_->program;
  if (impl_->folding == nullptr) return static_cast<std::int64_t>(program.ops.size());
  std::int64_t ops = 0;
  for (const RankId rank : impl_->folding->same_rank) {
    ops += program.stream_begin[(rank.index() + 1) * ir::kStreams] -
           program.stream_begin[rank.index() * ir::kStreams];
  }
  return ops;
}
const Folding* FoldedIteration::folding() const { return impl_->folding.get(); }
bool FoldedIteration::needs_check() const { return impl_->guess_; }
std::string FoldedIteration::find_meetings(const std::vector<FlowInterval>& flows) {
  return impl_->find_meetings(flows);
}
void FoldedIteration::fold_again(std::string_view meetings) { impl_->fold_again(meetings); }

}  // namespace orrery::sim
