/// One generation of a rank: joins the mesh, fetches its state, trains. Private to
/// executor/launcher.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/launcher/checkpoint.h"
#include "executor/launcher/generation_keys.h"
#include "executor/launcher/inventory.h"
#include "executor/launcher/messages.h"
#include "models/ir/program.h"

namespace orrery::executor {

class RankGeneration {
 public:
  RankGeneration(RankContext& context, std::int64_t generation, std::vector<std::int32_t> members,
                 int me);
  /// Runs it to its end and tells the launcher how it ended. Throws TransportError when the store
  /// is gone.
  void run();

 private:
  struct Live;

  void train(MemberStatus& status);
  std::unique_ptr<Backend> make_its_backend() const;
  std::unique_ptr<Transport> join();
  void prune();
  /// Folders that this rank writes something to.
  std::vector<CheckpointWriter::Target> checkpoint_targets(
      const std::vector<StateReport>& members) const;
  /// As CheckpointWriter asks.
  std::optional<StateVersion> saved_by_all(const std::string& target,
                                           const CheckpointWriter::Versions& written) const;
  void run_steps(Live& live, std::int64_t first, MemberStatus& status);
  void before_op(Live& live, OpId op);
  /// Faults that were asked for at this point of the step.
  void strike(const Live& live, FaultPoint point, OpId op);
  void keep_state(Live& live);
  void save(Live& live, std::int64_t step);
  void post_notes(Live& live);

  RankContext& context_;
  GenerationKeys keys_;
  std::int64_t generation_;
  std::vector<std::int32_t> members_;
  int me_;
  ir::Program program_;
  std::int64_t until_ = 0;
};

}  // namespace orrery::executor
