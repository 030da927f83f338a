/// How a member of a generation comes by its state: all publish what they have and need, make the
/// same StatePlan of it, and send each other the slices. Private to executor/launcher.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/launcher/generation_keys.h"
#include "executor/launcher/inventory.h"
#include "executor/launcher/state.h"
#include "executor/net/transport.h"
#include "models/ir/program.h"

namespace orrery::executor {

class StateFetch {
 public:
  /// Keeps references. `members`: how many the generation has.
  StateFetch(RankContext& context, GenerationKeys& keys, const ir::Program& program, int members)
      : context_(context), keys_(keys), program_(program), members_(members) {}

  /// Publishes what this process has, and needs if it has a worker; waits for all the others'
  /// reports, which are returned by member, as long as they read files. Throws TransportError.
  std::vector<StateReport> exchange(Worker* worker);
  /// Puts the state of plan_state() into the worker, or initial values where it has none, and sends
  /// what others need; waits until all have theirs. Returns the step that training goes on from.
  /// Throws TransportError, and std::runtime_error when a slice is gone meanwhile.
  std::int64_t load(Worker* worker, Transport& transport, const StatePlan& plan);

 private:
  /// What is in memory and, after a failure, in files.
  StateReport offers();
  void move(Worker* worker, Transport& transport, const StatePlan& plan);
  std::vector<std::byte> read(const StateMove& move, StateVersion version, std::size_t parts);

  RankContext& context_;
  GenerationKeys& keys_;
  const ir::Program& program_;
  int members_;
  std::vector<StateBank> files_;  ///< Of local checkpoints, where this member offers them.
  std::vector<StateBank> cloud_;  ///< Of the block that is moved, once it was read.
};

}  // namespace orrery::executor
