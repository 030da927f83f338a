/// Nodes that have lost all their ranks, but not their agent: a process of the agent's keeps their
/// local checkpoints within reach. It takes a lost device's place among the members of the next
/// generation, as one that has state and no rank. Private to executor/launcher.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "executor/launcher/process_table.h"

namespace orrery::executor {

class FileKeepers {
 public:
  /// Keeps references. Finds nothing unless the settings ask for local checkpoints.
  FileKeepers(ProcessTable& processes, const RunSettings& settings)
      : processes_(processes), settings_(settings) {}

  /// A device for each node that had one of the `lost` devices, has none of `members` now, and
  /// whose agent answers; each node is tried once. Says what it finds. Throws TransportError.
  std::vector<std::int32_t> find(const std::set<std::int32_t>& lost,
                                 const std::vector<std::int32_t>& members,
                                 const std::function<void(const std::string&)>& say);

 private:
  ProcessTable& processes_;
  const RunSettings& settings_;
  std::set<int> tried_;  ///< Nodes: what ends there once is not started again and again.
};

}  // namespace orrery::executor
