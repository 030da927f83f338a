/// For benchmarks of replays: a policy that counts the CPU time of its answers, and a table of what
/// a replay's time went into.
#pragma once
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "models/base/check.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/catalog.h"
#include "sim/replay/replay.h"
#include "sim/replay/simulated_timers.h"

namespace orrery::bench {

inline double cpu_seconds(int who) {
  rusage usage;
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
/// By the children that still run (servers of simulations) and those that they waited for, to a
/// hundredth [proc(5), /proc/pid/stat].
inline double cpu_seconds_of_running_children() {
  double ticks = 0;
  std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
  for (int child = 0; children >> child;) {
    std::ifstream stat(fmt::format("/proc/{}/stat", child));
    std::string line;
    std::getline(stat, line);
    std::istringstream fields(line.substr(line.rfind(')') + 1));  // From the third field on.
    std::string word;
    for (int field = 3; field <= 17 && fields >> word; ++field) {
      if (field >= 14) ticks += std::stod(word);
    }
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}
/// By this process and its forked simulations.
inline double cpu_seconds() {
  return cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN) +
         cpu_seconds_of_running_children();
}

/// The policy of the catalog; aborts where it cannot be had.
inline std::unique_ptr<models::RecoveryPolicy> policy_of(const std::string& name,
                                                         const planners::PolicyInput& input) {
  const planners::RecoveryEntry* entry = planners::find_policy(name);
  ORRERY_CHECK(entry != nullptr, "no policy {}", name);
  auto made = entry->make(input, {});
  if (const auto* why = std::get_if<models::Infeasible>(&made)) {
    ORRERY_CHECK(false, "{}: {}: {}", name, why->constraint, why->witness);
  }
  return std::get<std::unique_ptr<models::RecoveryPolicy>>(std::move(made));
}

class TimedPolicy final : public models::RecoveryPolicy {
 private:
  template <class F>
  static auto timed(double& sum, const F& call) {
    const double start = cpu_seconds();
    auto answer = call();
    sum += cpu_seconds() - start;
    return answer;
  }

 public:
  explicit TimedPolicy(const models::RecoveryPolicy& policy) : policy_(policy) {}
  std::string name() const override { return policy_.name(); }
  bool asks_after_recovery() const override { return policy_.asks_after_recovery(); }
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override {
    return timed(deciding_, [&] { return policy_.first_plan(live); });
  }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds time) const override {
    return timed(checkpoints_, [&] { return policy_.checkpoints(plan, time); });
  }
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override {
    return timed(deciding_, [&] { return policy_.on_events(state, events); });
  }
  double deciding() const { return deciding_; }  ///< CPU s, simulations that it asked for included.
  double checkpoint_costs() const { return checkpoints_; }

 private:
  const models::RecoveryPolicy& policy_;
  mutable double deciding_ = 0;
  mutable double checkpoints_ = 0;
};

inline void print_costs(const sim::ReplayResult& result, const sim::SimulatedTimers& timers,
                        double seconds, const char* unit, double target) {
  const sim::CacheCounts iterations = timers.iterations().counts();
  const sim::CacheCounts transfers = timers.transfers().counts();
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} events, {} decisions, {} interruptions\n", result.events, result.decisions,
             result.interruptions);
  fmt::print("iteration {:.3f} s, {} counted, ETTR {:.4f}, goodput {:.4f}\n",
             result.reference.value, result.iterations, result.ettr, result.goodput);
  fmt::print("replay                  {:8.3f} {}, target {} s: {}\n", seconds, unit, target,
             seconds <= target ? "met" : "MISSED");
  fmt::print("  iterations simulated  {:8.3f} s wall, {} of {} asked\n",
             iterations.simulating.value, iterations.simulated, iterations.asked);
  fmt::print("  plans recognized      {:8.3f} s wall\n", iterations.naming.value);
  fmt::print("  transfers simulated   {:8.3f} s wall, {} of {} asked\n", transfers.simulating.value,
             transfers.simulated, transfers.asked);
  fmt::print("  transfers recognized  {:8.3f} s wall\n", transfers.naming.value);
  fmt::print("peak memory             {:8.0f} MB\n", static_cast<double>(usage.ru_maxrss) / 1024);
}

}  // namespace orrery::bench
