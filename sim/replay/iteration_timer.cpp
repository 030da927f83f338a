#include "sim/replay/iteration_timer.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <optional>

#include "models/base/check.h"
#include "sim/iteration/evaluator.h"
#include "sim/replay/device_renaming.h"
#include "sim/replay/pipeline_order.h"

namespace orrery::sim {

using Clock = std::chrono::steady_clock;

Seconds wall_time_since(Clock::time_point start) {
  return Seconds{std::chrono::duration<double>(Clock::now() - start).count()};
}

static constexpr std::size_t kMostExpected = 2;  ///< Simulations under way.

struct PlanKey {
  ir::Plan plan;
  std::vector<models::SlowDevice> slow;
  models::DegradedLinks links;
  std::vector<models::StateTransfer> beside;  ///< Bytes of each second.
  auto operator<=>(const PlanKey&) const = default;
};

/// A question under the names that all equal ones get.
struct SimulatedIterationTimer::Named {
  PlanKey key;
  std::vector<std::size_t> places;  ///< order_of_pipelines()
  std::vector<DeviceId> order;      ///< Of the plan in that order, under its own names.
  std::vector<DeviceId> to;
};

struct SimulatedIterationTimer::Memory {
  struct Expected {
    PlanKey key;
    SimulatorEvaluator::Running running;
  };
  SimulatorEvaluator::Running start(const PlanKey& key) const;
  void add_loads(const PlanKey& key, std::vector<SlowLink>& links) const;
  std::list<Expected>::iterator find_expected(const PlanKey& key);

  const models::Topology& topology;
  const TransferPaths& paths;
  DeviceRenaming renaming;
  SimulatorEvaluator evaluator;
  std::map<PlanKey, models::Evaluation> known;
  RememberCounts counts;
  std::list<Expected> expected;  ///< Oldest first.
};

std::list<SimulatedIterationTimer::Memory::Expected>::iterator
SimulatedIterationTimer::Memory::find_expected(const PlanKey& key) {
  return std::find_if(expected.begin(), expected.end(),
                      [&](const Expected& one) { return one.key == key; });
}

SimulatorEvaluator::Running SimulatedIterationTimer::Memory::start(const PlanKey& key) const {
  std::vector<Straggler> stragglers;
  for (const models::SlowDevice& device : key.slow) {
    stragglers.push_back({device.device, 1 / device.factor});
  }
  std::vector<SlowLink> links;
  for (const auto& [link, factor] : key.links) links.push_back({link, 1 / factor});
  add_loads(key, links);
  return evaluator.start(key.plan, stragglers, links);
}

/// What transfers beside training take from links, as slower links.
void SimulatedIterationTimer::Memory::add_loads(const PlanKey& key,
                                                std::vector<SlowLink>& links) const {
  std::map<LinkId, double> rates;
  for (const models::StateTransfer& transfer : key.beside) {
    std::vector<LinkId> way;
    Seconds latency;
    paths.path(transfer, way, latency);
    for (const LinkId link : way) {
      if (link.index() < topology.links().size()) rates[link] += transfer.bytes.value;
    }
  }
  for (const auto& [id, rate] : rates) {
    const models::Link& link = topology.links()[id.index()];
    double bandwidth = link.bandwidth.value;
    for (const auto& [name, factor] : key.links) bandwidth *= name == link.name ? factor : 1;
    links.push_back({link.name, bandwidth / std::max(bandwidth - rate, bandwidth / 2)});
  }
}

SimulatedIterationTimer::SimulatedIterationTimer(IterationSimulator& simulator,
                                                 const TransferPaths& paths,
                                                 const models::Workload& workload,
                                                 const models::Job& job, const ir::Profile& profile,
                                                 IterationOptions options, RememberOptions remember)
    : memory_(new Memory{
          simulator.topology(),
          paths,
          DeviceRenaming(simulator.cluster(), simulator.topology(), remember.ignore_leaves),
          SimulatorEvaluator(simulator, workload, job, profile, std::move(options)),
          {},
          {},
          {}}) {}

SimulatedIterationTimer::~SimulatedIterationTimer() = default;

RememberCounts SimulatedIterationTimer::counts() const { return memory_->counts; }
const models::Pricer& SimulatedIterationTimer::pricer() const {
  return memory_->evaluator.pricer();
}

Seconds SimulatedIterationTimer::time(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const std::vector<std::pair<std::string, double>>& degraded_links) const {
  return evaluate(plan, slow, degraded_links).iteration_time;
}

Seconds SimulatedIterationTimer::time_beside(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const models::DegradedLinks& degraded_links,
    const std::vector<models::StateTransfer>& per_second) const {
  return evaluate(plan, slow, degraded_links, per_second).iteration_time;
}

SimulatedIterationTimer::Named SimulatedIterationTimer::name(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const models::DegradedLinks& degraded_links,
    const std::vector<models::StateTransfer>& per_second) const {
  const DeviceRenaming& renaming = memory_->renaming;
  Named named;
  named.places = order_of_pipelines(plan, slow, renaming);
  const ir::Plan sorted = reordered(plan, named.places);
  named.order = order_of(sorted);
  std::vector<std::string> degraded;
  for (const auto& [link, factor] : degraded_links) degraded.push_back(link);
  DeviceRenaming::Names names = renaming.names(named.order, degraded);
  named.to = std::move(names.to);
  named.key.plan = renamed(sorted, named.to);
  for (const models::SlowDevice& device : slow) {
    const DeviceId to = named.to[device.device.index()];
    if (to.valid() && device.factor != 1.0) named.key.slow.push_back({to, device.factor});
  }
  std::sort(named.key.slow.begin(), named.key.slow.end(),
            [](const auto& a, const auto& b) { return a.device < b.device; });
  for (const auto& entry : degraded_links) {
    if (std::count(names.links.begin(), names.links.end(), entry.first) > 0) {
      named.key.links.push_back(entry);
    }
  }
  named.key.beside = per_second;
  for (models::StateTransfer& transfer : named.key.beside) {
    for (DeviceId* end : {&transfer.source, &transfer.destination}) {
      if (!end->valid()) continue;
      const DeviceId to = named.to[end->index()];
      ORRERY_CHECK(to.valid(), "device {} copies beside a plan that it is not in", end->value);
      *end = to;
    }
  }
  std::sort(named.key.beside.begin(), named.key.beside.end());
  return named;
}

void SimulatedIterationTimer::prefetch(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const std::vector<std::pair<std::string, double>>& degraded_links) const {
  Memory& memory = *memory_;
  const Clock::time_point start = Clock::now();
  Named named = name(plan, slow, degraded_links, {});
  const bool is_new =
      !memory.known.contains(named.key) && memory.find_expected(named.key) == memory.expected.end();
  memory.counts.naming += wall_time_since(start);
  if (!is_new) return;
  const Clock::time_point begin = Clock::now();
  if (memory.expected.size() == kMostExpected) memory.expected.pop_front();
  SimulatorEvaluator::Running running = memory.start(named.key);
  memory.expected.push_back({std::move(named.key), std::move(running)});
  memory.counts.simulating += wall_time_since(begin);
}

models::Evaluation SimulatedIterationTimer::evaluate(
    const ir::Plan& plan, const std::vector<models::SlowDevice>& slow,
    const models::DegradedLinks& degraded_links,
    const std::vector<models::StateTransfer>& per_second) const {
  Memory& memory = *memory_;
  ++memory.counts.asked;
  const Clock::time_point start = Clock::now();
  Named named = name(plan, slow, degraded_links, per_second);
  auto found = memory.known.find(named.key);
  memory.counts.naming += wall_time_since(start);
  if (found == memory.known.end()) {
    const Clock::time_point begin = Clock::now();
    const auto expected = memory.find_expected(named.key);
    const bool is_running = expected != memory.expected.end();
    models::Evaluation evaluation =
        is_running ? expected->running.join() : memory.start(named.key).join();
    if (is_running) memory.expected.erase(expected);
    found = memory.known.emplace(std::move(named.key), std::move(evaluation)).first;
    ++memory.counts.simulated;
    memory.counts.simulating += wall_time_since(begin);
  }
  models::Evaluation evaluation = found->second;
  for (std::size_t i = 0; i < found->second.pipeline_times.size(); ++i) {
    evaluation.pipeline_times[named.places[i]] = found->second.pipeline_times[i];
  }
  // The verdict names devices and pipelines; theirs are those of the plan that was asked for.
  for (ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
    use.pipeline = static_cast<int>(named.places[static_cast<std::size_t>(use.pipeline)]);
    for (const DeviceId device : named.order) {
      if (named.to[device.index()] != use.device) continue;
      use.device = device;
      break;
    }
  }
  return evaluation;
}

}  // namespace orrery::sim
