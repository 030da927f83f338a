/// Second phase of HexiScale: from a set of GPUs to a pipeline. Groups of GPUs with fast links,
/// tensor-parallel stages inside each machine, an order of the groups, layers. [HexiScale, 4.3]
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "models/base/rng.h"
#include "planners/hexiscale/costs.h"
#include "planners/hexiscale/layers.h"
#include "planners/hexiscale/settings.h"
#include "planners/kit/graph.h"
#include "planners/kit/partition.h"

namespace orrery::planners {

using DeviceList = std::vector<DeviceId>;

/// One pipeline of a plan in the making.
struct PipelineDraft {
  std::vector<DeviceList> stages;  ///< Tensor-parallel groups in stage order.
  std::vector<int> layers;         ///< By stage.
  PipelineRate rate;
  Seconds time(int micro_batches) const { return rate.fill + (micro_batches - 1) * rate.period; }
};

/// The graph of phase 1 and 2: a vertex for each device with its peak as weight, an edge for each
/// pair with its bandwidth (GB/s, so that sums stay moderate).
WeightedGraph device_graph(const HexiscaleCosts& costs, const DeviceList& devices);

/// The part of each vertex under the settings' rule, none empty: the graph partition, or a random
/// deal in equal numbers that sees neither links nor compute power.
std::vector<int> parts_of(const WeightedGraph& graph, int parts, const PartitionOptions& options,
                          const HexiscaleSettings& settings, Rng& rng);

/// What a pipeline is built for.
struct PipelineTask {
  DeviceList devices;
  int pipelines = 1;      ///< Of the plan.
  int micro_batches = 1;  ///< Expected; the batch is shared out afterwards.
};

class PipelineBuilder {
 public:
  PipelineBuilder(const models::Cluster& cluster, const HexiscaleCosts& costs,
                  const HexiscaleSettings& settings)
      : cluster_(cluster), costs_(costs), settings_(settings) {}

  /// Most groups that the devices of a pipeline are split into: one for each machine, at most 16.
  int most_groups(const DeviceList& devices) const;

  /// The fastest pipeline with `groups` (k_i) GPU groups, or nothing when none holds the layers;
  /// of equally fast ones the first in order of group numbers, so that the stages of equal
  /// pipelines are on the same machines. Counts up `examined` for each layout tried.
  std::optional<PipelineDraft> build(const PipelineTask& task, int groups, Rng& rng,
                                     std::int64_t& examined) const;

  /// The same stages with layers assigned again for `micro_batches`.
  std::optional<PipelineDraft> assign(const std::vector<DeviceList>& stages, int pipelines,
                                      int micro_batches) const;

 private:
  /// GPUs of one machine and type in a group, and the ways to form stages of them.
  struct Machine {
    DeviceList devices;
    double share = 0;  ///< Of the pipeline's layers, by compute power.
  };
  struct Strategy {
    std::vector<DeviceList> stages;
    double cost = 0;  ///< Seconds that this part of the pipeline takes alone.
    double room = 0;  ///< Layers that it can hold.
  };
  /// By which of a machine's strategies one is taken.
  enum class Choice { cost, cost_with_room, room, fewest_stages };
  struct MachineChoices {
    double share = 0;
    std::vector<Strategy> strategies;
  };
  using Grouped = std::vector<std::vector<MachineChoices>>;  // [group][machine]
  using GroupStages = std::vector<std::vector<DeviceList>>;  // [group][stage]

  Grouped enumerate(const PipelineTask& task, int groups, Rng& rng) const;
  std::vector<Machine> machines_of(const DeviceList& group, double power_per_layer) const;
  std::vector<Strategy> strategies(const Machine& machine, const PipelineTask& task) const;
  Strategy evaluate(std::vector<DeviceList> stages, double share, const PipelineTask& task) const;
  static const Strategy& choose(const MachineChoices& machine, Choice by);
  static GroupStages choose_all(const Grouped& grouped, Choice by);
  std::vector<std::vector<int>> orders(const GroupStages& groups) const;
  void order_and_assign(const GroupStages& groups, const PipelineTask& task,
                        std::optional<PipelineDraft>& best, std::int64_t& examined) const;

  const models::Cluster& cluster_;
  const HexiscaleCosts& costs_;
  const HexiscaleSettings& settings_;
};

}  // namespace orrery::planners
