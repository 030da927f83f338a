#include "sim/replay/simulated_iteration_timer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "sim/iteration/evaluator.h"
#include "sim/replay/device_renaming.h"
#include "sim/replay/pipeline_order.h"

namespace orrery::sim {

/// A question under the names that all equal ones get.
struct IterationKey {
  ir::Plan plan;
  std::vector<models::SlowDevice> slow;
  models::DegradedLinks degraded_links;
  std::vector<models::StateTransfer> background;
  auto operator<=>(const IterationKey&) const = default;
};

class SimulatedIterationTimer::Impl {
 public:
  Impl(IterationSimulator& simulator, const TransferPaths& paths, const models::Workload& workload,
       const models::Job& job, const ir::Profile& profile, IterationOptions options,
       CacheOptions cache)
      : topology_(simulator.topology()),
        paths_(paths),
        renaming_(simulator.cluster(), simulator.topology(), cache.ignore_leaves),
        evaluator_(simulator, workload, job, profile, std::move(options)) {}

  void prefetch(const ir::Plan& plan, const IterationConditions& conditions) {
    cache_.prefetch([&] { return name(plan, conditions).key; },
                    [&](const IterationKey& key) { return start(key); });
  }

  models::Evaluation evaluate(const ir::Plan& plan, const IterationConditions& conditions) {
    Named named;
    const models::Evaluation& known = cache_.get(
        [&] {
          named = name(plan, conditions);
          return std::move(named.key);
        },
        [&](const IterationKey& key) { return start(key); },
        [](SimulatorEvaluator::Running running) { return running.join(); });
    models::Evaluation evaluation = known;
    for (std::size_t i = 0; i < known.pipeline_times.size(); ++i) {
      evaluation.pipeline_times[named.pipelines[i]] = known.pipeline_times[i];
    }
    // The verdict names devices and pipelines: those of the plan that was asked for.
    for (ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
      use.pipeline = static_cast<int>(named.pipelines[static_cast<std::size_t>(use.pipeline)]);
      for (const DeviceId device : named.devices) {
        if (named.to[device] != use.device) continue;
        use.device = device;
        break;
      }
    }
    return evaluation;
  }

  const CacheCounts& counts() const { return cache_.counts(); }
  const models::Pricer& pricer() const { return evaluator_.pricer(); }

 private:
  struct Named {
    IterationKey key;
    std::vector<std::size_t> pipelines;  ///< order_of_pipelines()
    std::vector<DeviceId> devices;       ///< Of the plan in that order, under its own names.
    IdVector<DeviceId, DeviceId> to;
  };

  Named name(const ir::Plan& plan, const IterationConditions& conditions) const {
    Named named;
    named.pipelines = order_of_pipelines(plan, conditions.slow, renaming_);
    const ir::Plan sorted = reordered(plan, named.pipelines);
    named.devices = devices_in_order(sorted);
    DeviceRenaming::Names names = renaming_.names(named.devices, conditions.degraded_links);
    named.to = std::move(names.to);
    IterationKey& key = named.key;
    key.plan = renamed(sorted, named.to);
    for (const models::SlowDevice& device : conditions.slow) {
      const DeviceId to = named.to[device.device];
      if (to.valid() && device.factor != 1.0) key.slow.push_back({to, device.factor});
    }
    std::sort(key.slow.begin(), key.slow.end(),
              [](const auto& a, const auto& b) { return a.device < b.device; });
    key.degraded_links = std::move(names.degraded_links);
    key.background = conditions.background;
    for (models::StateTransfer& transfer : key.background) {
      for (DeviceId* end : {&transfer.source, &transfer.destination}) {
        if (!end->valid()) continue;
        const DeviceId to = named.to[*end];
        ORRERY_CHECK(to.valid(), "device {} transfers in the background of a plan without it",
                     end->value);
        *end = to;
      }
    }
    std::sort(key.background.begin(), key.background.end());
    return named;
  }

  SimulatorEvaluator::Running start(const IterationKey& key) const {
    std::vector<Straggler> stragglers;
    for (const models::SlowDevice& device : key.slow) {
      stragglers.push_back({device.device, 1 / device.factor});
    }
    std::vector<SlowLink> links;
    for (const auto& [link, factor] : key.degraded_links) links.push_back({link, 1 / factor});
    add_background(key, links);
    return evaluator_.start(key.plan, stragglers, links);
  }

  /// What background transfers take from links, as slower links.
  void add_background(const IterationKey& key, std::vector<SlowLink>& links) const {
    std::map<LinkId, double> rates;
    for (const models::StateTransfer& transfer : key.background) {
      std::vector<LinkId> route;
      Seconds latency;
      paths_.path(transfer, route, latency);
      for (const LinkId link : route) {
        if (link.index() < topology_.links().size()) rates[link] += transfer.bytes.value;
      }
    }
    for (const auto& [id, rate] : rates) {
      const models::Link& link = topology_.links()[id];
      double bandwidth = link.bandwidth.value;
      for (const auto& [name, factor] : key.degraded_links) {
        bandwidth *= name == link.name ? factor : 1;
      }
      links.push_back({link.name, bandwidth / std::max(bandwidth - rate, bandwidth / 2)});
    }
  }

  const models::Topology& topology_;
  const TransferPaths& paths_;
  DeviceRenaming renaming_;
  SimulatorEvaluator evaluator_;
  SimulationCache<IterationKey, SimulatorEvaluator::Running, models::Evaluation> cache_{2};
};

SimulatedIterationTimer::SimulatedIterationTimer(IterationSimulator& simulator,
                                                 const TransferPaths& paths,
                                                 const models::Workload& workload,
                                                 const models::Job& job, const ir::Profile& profile,
                                                 IterationOptions options, CacheOptions cache)
    : impl_(std::make_unique<Impl>(simulator, paths, workload, job, profile, std::move(options),
                                   cache)) {}

SimulatedIterationTimer::~SimulatedIterationTimer() = default;

void SimulatedIterationTimer::prefetch(const ir::Plan& plan,
                                       const IterationConditions& conditions) const {
  impl_->prefetch(plan, conditions);
}

models::Evaluation SimulatedIterationTimer::evaluate(const ir::Plan& plan,
                                                     const IterationConditions& conditions) const {
  return impl_->evaluate(plan, conditions);
}

CacheCounts SimulatedIterationTimer::counts() const { return impl_->counts(); }
const models::Pricer& SimulatedIterationTimer::pricer() const { return impl_->pricer(); }

}  // namespace orrery::sim
