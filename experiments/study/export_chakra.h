/// A plan's iteration as Chakra execution traces, one for each GPU, and with the network of its
/// cluster as inputs of ASTRA-sim.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/execute.h"

namespace orrery::experiments {

struct ExportedFile {
  std::string name;  ///< In the folder of the export.
  std::string bytes;
  bool executable = false;
};

/// chakra.<rank>.et and comm_groups.json. Ranks number the plan's GPUs as the cluster does. A pass
/// is cut into as many pieces as it has equal inner collectives, as training does and `simulate
/// --inner per_block` simulates; pieces carry their price. Throws NotExpressible where a trace
/// cannot say what the program does. `run` has a plan.
std::vector<ExportedFile> chakra_files(const LoadedRun& run);

/// These, and network.yml, system.json, remote_memory.json and run.sh for ASTRA-sim's analytical
/// network: GPUs of a node behind one switch, nodes behind another. A broadcast, which ASTRA-sim
/// replays without its root, is a gather that moves as many bytes over each link. Throws
/// NotExpressible where the plan's part of the cluster has no such form.
std::vector<ExportedFile> astra_sim_files(const LoadedRun& run);

}  // namespace orrery::experiments
