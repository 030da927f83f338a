// CheckFreq: snapshots to host memory run beside the next iteration's forward and backward passes,
// persisting beside the iterations after it; the interval is the shortest one whose stalls stay
// under an overhead budget. Recovery is a restart from the last persisted checkpoint.
// [CheckFreq, Mohan et al., FAST 2021, sections 4 and 5]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"
#include "planners/recovery/kit/checkpointing.h"

namespace orrery::planners {

extern const RecoveryEntry kCheckfreqRecovery;

namespace {

std::vector<OptionInfo> options() {
  std::vector<OptionInfo> all = checkpointed_options();
  all.push_back({"location", "cloud", "Where checkpoints persist: cloud, or the node's nvme."});
  all.push_back({"overhead", "0.035",
                 "Most share of training time that stalls may take [CheckFreq, 4.3: 3.5 %, "
                 "unverified]."});
  all.push_back({"backward_share", "1",
                 "Share of an iteration, its forward and backward passes, that hides a snapshot; "
                 "weights change in the rest. 1: assumed, the optimizer step is short."});
  return all;
}

class Checkfreq final : public CheckpointedPolicy {
 public:
  Checkfreq(const PolicyInput& input, CheckpointedRules rules, ir::Location location,
            double overhead, double hiding)
      : CheckpointedPolicy(input, std::move(rules)),
        location_(location),
        overhead_(overhead),
        hiding_(hiding) {}
  std::string name() const override { return kCheckfreqRecovery.name; }

  /// Least k with stall / (k T) <= budget and persist <= k T + stall.
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    CheckpointCost cost =
        checkpoint_cost(input(), plan, location_, models::all_state_bytes(input().job),
                        location_ == ir::Location::cloud);
    const Seconds stall = std::max(Seconds{0}, cost.snapshot - hiding_ * iteration_time);
    const Seconds written = cost.snapshot + cost.persist;
    const double by_budget = std::ceil(stall / (overhead_ * iteration_time) - 1e-9);
    const double by_storage = std::ceil((written - stall) / iteration_time - 1e-9);
    models::CheckpointLevel level;
    level.location = location_;
    level.stall = to_nanoseconds(stall);
    level.persist = to_nanoseconds(written);
    level.every = static_cast<std::int64_t>(std::max({1.0, by_budget, by_storage}));
    level.source = fmt::format("CheckFreq 4: {} bounds the interval",
                               by_budget > by_storage ? "the overhead budget" : "persisting");
    level.background = std::move(cost.uploads);
    return {level};
  }

 private:
  ir::Location location_;
  double overhead_;
  double hiding_;
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  const auto location = reader.choice<ir::Location>(
      "location", {{"cloud", ir::Location::cloud}, {"nvme", ir::Location::nvme}});
  const double overhead = reader.number("overhead", 1e-6, 1);
  const double hiding = reader.number("backward_share", 0, 1);
  auto read = read_checkpointed(reader, options());
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto rules = std::get<CheckpointedRules>(std::move(read));
  if (const std::string problem = location_problem(input.cluster, location); !problem.empty()) {
    return models::Infeasible{"checkpoint location", problem};
  }
  rules.drops_nodes = true;
  rules.save_first = location;
  rules.order = location == ir::Location::cloud
                    ? std::vector<StateSource>{StateSource::cloud}
                    : std::vector<StateSource>{StateSource::own_nvme, StateSource::peer_nvme};
  return std::make_unique<Checkfreq>(input, std::move(rules), location, overhead, hiding);
}

}  // namespace

const RecoveryEntry kCheckfreqRecovery = {
    "checkfreq",
    "CheckFreq (Mohan et al., FAST 2021), 4 and 5",
    "restarts from the last persisted checkpoint; snapshot and persist are pipelined with training",
    "any plan",
    "one to two checkpoint intervals",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "the interval follows from closed-form costs and the simulated iteration, not from profiling "
    "at run time, and is not tuned again when costs change; the state of the data loader is not "
    "modeled; asynchronous persists and uploads do not slow iterations unless "
    "background transfers are simulated",
    options,
    make,
};

}  // namespace orrery::planners
