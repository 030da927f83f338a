/// Inputs of Oobleck's Figures 9 and 10: throughput by number of nodes and other people's traces
/// (read from $ORRERY_DATA; none of that data is kept here), and the constants of the three
/// simulators of the paper's artifact (SymbioticLab/Oobleck, branch sosp23-artifact,
/// tools/simulator; MIT).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/base/units.h"

namespace orrery::experiments {

enum class OobleckSystem { bamboo, varuna, oobleck };
const char* name_of(OobleckSystem system);

/// Samples per second by number of active nodes, 15 to 30. More run as 30 do, fewer as 15 do.
using NodeThroughput = std::map<int, double>;

/// A model of Figure 9 and what the simulators say of it. [artifact, *_simulator.py]
struct OobleckModel {
  std::string name;        ///< As in throughput.csv.
  std::string label;       ///< As in published.csv.
  double samples = 0;      ///< Per step.
  Seconds oobleck_stall;   ///< Reconfiguration.
  Seconds bamboo_rebuild;  ///< Reconfiguration at the end of a step.
  Seconds varuna_checkpoint;
  Seconds varuna_restart;  ///< Checkpoint included; the first one where it goes by nodes.
  /// BERT-large only: restart by number of nodes before the loss.
  std::map<int, Seconds> varuna_restart_by_nodes;
  /// Figure 10 runs Varuna without going back to a checkpoint on the smaller models.
  bool spot_falls_back = true;
  bool bamboo_fits = false;
};
const std::vector<OobleckModel>& oobleck_models();

inline constexpr Seconds kNodeReady{45};         ///< From `add` until a node can be used.
inline constexpr int kCheckpointEvery = 10;      ///< Steps, Varuna.
inline constexpr int kLeastNodes = 12;           ///< Fewer stop the job.
inline constexpr Seconds kBambooRestart{30};     ///< After a loss that Bamboo does not survive.
inline constexpr double kBambooSlowdown = 1.5;   ///< Factor on a node that computes two stages.
inline constexpr double kBambooUseful = 0.1971;  ///< Share of its work that is not redundant.

/// A line `ms,add|remove,name`.
struct NodeChange {
  std::int64_t ms = 0;
  bool comes = false;
  std::string name;
};

/// $ORRERY_DATA, else ../shared next to the repository's root `root`.
std::string data_folder(const std::string& root);
/// Throughput by model name and system; throws std::runtime_error with file and line.
std::map<std::pair<std::string, std::string>, NodeThroughput> read_throughput(
    const std::string& path);
/// Lines in the file's order; throws std::runtime_error with file and line.
std::vector<NodeChange> read_changes(const std::string& path);

/// Throughput by the table, for any number of nodes.
double throughput_at(const NodeThroughput& table, int nodes);

}  // namespace orrery::experiments
