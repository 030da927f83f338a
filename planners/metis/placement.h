/// Ranks of Metis's search (ATC 2024): devices in the order of a sequence of GPU types, and the
/// slowest links between ranges of them.
#pragma once
#include <optional>
#include <vector>

#include "planners/kit/integers.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Where ranks are for one sequence of GPU types. Ranks of a type follow one another node by node.
class MetisPlacement {
 public:
  /// `types`: positions in Cluster::gpu_types, each once.
  MetisPlacement(const PlannerInput& input, bool as_published, std::vector<int> types);

  int size() const { return static_cast<int>(devices.size()); }
  /// Slowest link that ranks [first, last) communicate over, in Metis's unit: GB/s. Inside a node
  /// its own links, else those between the nodes. [Metis, 4.2.1: "the slowest network bandwidth"]
  double bandwidth(int first, int last) const;
  /// As the public code finds it: every node counts as large as the first of the cluster file, and
  /// between nodes the links inside the slowest node of the types count. None where it stops.
  std::optional<double> published_bandwidth(const std::vector<int>& ranks) const;

  std::vector<int> sequence;
  std::vector<DeviceId> devices;  ///< By rank.
  std::vector<int> type;          ///< By rank.
  std::vector<int> node;          ///< By rank, numbered from 0 in rank order.
  /// By rank, as the public code's memory model has it: nodes as large as the first one.
  std::vector<int> published_type;

 private:
  struct Machine {
    NodeId id;
    int type = 0;
    std::vector<DeviceId> devices;
    double inside = 0;  ///< GB/s.
  };
  void measure_spans(const PlannerInput& input);

  std::vector<Machine> file_;              ///< In the order of the cluster file.
  std::vector<int> machine_;               ///< By node: position in file_.
  std::vector<std::vector<double>> span_;  ///< Slowest between nodes a to b, b > a; or inside a.
};

}  // namespace orrery::planners
