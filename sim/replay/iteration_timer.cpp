#include "sim/replay/iteration_timer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "sim/iteration/evaluator.h"
#include "sim/replay/device_renaming.h"

namespace orrery::sim {
namespace {

using Clock = std::chrono::steady_clock;

Seconds since(Clock::time_point start) {
  return Seconds{std::chrono::duration<double>(Clock::now() - start).count()};
}

struct PlanKey {
  ir::Plan plan;
  std::vector<models::SlowDevice> slow;
  std::vector<std::pair<std::string, double>> links;
  auto operator<=>(const PlanKey&) const = default;
};

}  // namespace

struct SimulatedIterationTimer::Memory {
  DeviceRenaming renaming;
  SimulatorEvaluator evaluator;
  std::map<PlanKey, models::Evaluation> known;
  RememberCounts counts;
};

SimulatedIterationTimer::SimulatedIterationTimer(IterationSimulator& simulator,
                                                 const models::Workload& workload,
                                                 const models::Job& job, const ir::Profile& profile,
                                                 IterationOptions options, RememberOptions remember)
    : memory_(new Memory{
          DeviceRenaming(simulator.cluster(), simulator.topology(), remember.ignore_leaves),
          SimulatorEvaluator(simulator, workload, job, profile, std::move(options)),
          {},
          {}}) {}

SimulatedIterationTimer::~SimulatedIterationTimer() = default;

RememberCounts SimulatedIterationTimer::counts() const { return memory_->counts; }

Seconds SimulatedIterationTimer::time(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const std::vector<std::pair<std::string, double>>& degraded_links) const {
  return evaluate(plan, slow, degraded_links).iteration_time;
}

models::Evaluation SimulatedIterationTimer::evaluate(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const std::vector<std::pair<std::string, double>>& degraded_links) const {
  Memory& memory = *memory_;
  ++memory.counts.asked;
  const Clock::time_point start = Clock::now();
  const std::vector<DeviceId> order = order_of(plan);
  std::vector<std::string> degraded;
  for (const auto& [link, factor] : degraded_links) degraded.push_back(link);
  const DeviceRenaming::Names names = memory.renaming.names(order, degraded);

  PlanKey key{renamed(plan, names.to), {}, {}};
  for (const models::SlowDevice& device : slow) {
    const DeviceId name = names.to[device.device.index()];
    if (name.valid() && device.factor != 1.0) key.slow.push_back({name, device.factor});
  }
  std::sort(key.slow.begin(), key.slow.end(),
            [](const auto& a, const auto& b) { return a.device < b.device; });
  for (const auto& entry : degraded_links) {
    if (std::count(names.links.begin(), names.links.end(), entry.first) > 0) {
      key.links.push_back(entry);
    }
  }
  auto found = memory.known.find(key);
  memory.counts.naming += since(start);
  if (found == memory.known.end()) {
    const Clock::time_point begin = Clock::now();
    std::vector<Straggler> stragglers;
    for (const models::SlowDevice& device : key.slow) {
      stragglers.push_back({device.device, 1 / device.factor});
    }
    std::vector<SlowLink> links;
    for (const auto& [link, factor] : key.links) links.push_back({link, 1 / factor});
    models::Evaluation evaluation = memory.evaluator.evaluate(key.plan, stragglers, links);
    found = memory.known.emplace(std::move(key), std::move(evaluation)).first;
    ++memory.counts.simulated;
    memory.counts.simulating += since(begin);
  }
  models::Evaluation evaluation = found->second;
  // The verdict names devices; theirs are those of the plan that was asked for.
  for (ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
    for (const DeviceId device : order) {
      if (names.to[device.index()] != use.device) continue;
      use.device = device;
      break;
    }
  }
  return evaluation;
}

}  // namespace orrery::sim
