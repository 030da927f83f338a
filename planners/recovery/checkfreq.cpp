// CheckFreq: snapshots to host memory overlap the next iteration's forward and backward passes,
// persisting the iterations after it; the interval is the shortest one whose stalls stay
// under an overhead budget. Recovery is a restart from the last persisted checkpoint.
// [CheckFreq, Mohan et al., FAST 2021, sections 4 and 5]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"

namespace orrery::planners {

extern const RecoveryEntry kCheckfreqRecovery;

namespace {

struct CheckfreqSettings {
  CheckpointedSettings checkpointed;
  PersistTo location = PersistTo::cloud;
  CheckpointInterval interval;
  double overhead = 0.035;
  double backward_share = 1;
};

void describe(config::Visitor& v, CheckfreqSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  v.optional("location", s.location, "Where checkpoints persist: cloud, or the node's nvme.");
  v.optional(
      "interval", s.interval,
      "Between checkpoints: auto (Young's), own (the shortest within overhead), young, daly, "
      "availability, tuned, or seconds.");
  v.optional("overhead", s.overhead,
             "Of the own interval: most share of training time that stalls may take [CheckFreq, "
             "4.3: 3.5 %, "
             "unverified].");
  v.between("overhead", s.overhead, 1e-6, 1.0);
  v.optional("backward_share", s.backward_share,
             "Share of an iteration, its forward and backward passes, that hides a snapshot; "
             "weights change in the rest. 1: assumed, the optimizer step is short.");
  v.between("backward_share", s.backward_share, 0.0, 1.0);
}

class Checkfreq final : public CheckpointedPolicy {
 public:
  using Settings = CheckfreqSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    if (auto problem = location_problem(input.cluster, location_of(s.location))) return *problem;
    return std::make_unique<Checkfreq>(input, s);
  }
  Checkfreq(const PolicyInput& input, const Settings& s)
      : CheckpointedPolicy(input, s.checkpointed, restart_from(location_of(s.location), true)),
        settings_(s) {}
  std::string name() const override { return kCheckfreqRecovery.name; }

  /// Own interval: the least k with stall / (k T) <= budget and persist <= k T + stall.
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    const ir::Location location = location_of(settings_.location);
    CheckpointCost cost = checkpoint_cost(input(), plan, location);
    const Seconds hidden = settings_.backward_share * iteration_time;
    const Seconds stall = std::max(Seconds{0}, cost.snapshot - hidden);
    const Seconds written = cost.snapshot + cost.persist;
    models::CheckpointLevel level;
    level.location = location;
    level.stall = to_nanoseconds(stall);
    level.persist = to_nanoseconds(written);
    level.background = std::move(cost.uploads);
    const CheckpointInterval own = {CheckpointInterval::Rule::own, {}};
    const CheckpointInterval interval = chosen(settings_.interval, own, phases().constants);
    if (interval.rule != CheckpointInterval::Rule::own) {
      level.every = iterations_between(interval, {stall, written, restart_estimate(plan)},
                                       iteration_time, expected_interruptions(input()));
      level.source = "CheckFreq 4; interval " + to_scalar(interval);
      return {level};
    }
    const double by_budget = std::ceil(stall / (settings_.overhead * iteration_time) - 1e-9);
    const double by_storage = std::ceil((written - stall) / iteration_time - 1e-9);
    level.every = static_cast<std::int64_t>(std::max({1.0, by_budget, by_storage}));
    level.source = fmt::format("CheckFreq 4: {} bounds the interval",
                               by_budget > by_storage ? "the overhead budget" : "persisting");
    return {level};
  }

 private:
  CheckfreqSettings settings_;
};

}  // namespace

constinit const RecoveryEntry kCheckfreqRecovery = recovery_entry<Checkfreq>({
    .name = "checkfreq",
    .source = "CheckFreq (Mohan et al., FAST 2021), 4 and 5",
    .recovers = "restarts from the last persisted checkpoint; snapshot and persist are pipelined "
                "with training",
    .needs = "any plan",
    .loses = "one to two checkpoint intervals",
    .slow = kLeavesOutSlowDevices,
    .deviations = "the interval follows from closed-form costs and the simulated iteration, not "
                  "from profiling at run time, and is not tuned again when costs change; the state "
                  "of the data loader is not modeled",
});

}  // namespace orrery::planners
