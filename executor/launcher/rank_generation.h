/// One generation in a rank process: joins the mesh, fetches its state, trains. Private to
/// executor/launcher.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "executor/launcher/checkpoint.h"
#include "executor/launcher/inventory.h"
#include "executor/launcher/order_watcher.h"
#include "executor/launcher/rank_process.h"
#include "executor/launcher/reports.h"
#include "executor/launcher/settings.h"
#include "executor/launcher/state.h"
#include "executor/net/store.h"
#include "models/ir/program.h"

namespace orrery::executor {

/// What a rank process keeps from one generation to the next.
struct RankContext {
  RankEnvironment environment;
  RunSettings settings;
  StoreClient& store;
  Reporter& reporter;
  OrderWatcher& watcher;
  std::vector<StateBank> banks;  ///< Newest first, at most two versions.
  std::vector<RunMark> marks;    ///< In the checkpoint folders.
  /// Each strikes once, also where its step is repeated.
  std::set<const FaultInjection*> struck = {};
};

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
  std::unique_ptr<Transport> join();
  std::vector<StateReport> exchange(const StateReport& mine);
  StateReport offers();
  void prune();
  /// Returns the step that training goes on from.
  std::int64_t load(Live& live, const StatePlan& plan);
  void move(Live& live, const StatePlan& plan);
  std::vector<std::byte> read(const StateMove& move, StateVersion version, std::size_t parts);
  void run_steps(Live& live, std::int64_t first, MemberStatus& status);
  void before_op(Live& live, OpId op);
  /// Faults that were asked for at this point of the step.
  void strike(const Live& live, FaultPoint point, OpId op);
  void keep_state(Live& live);
  void save(Live& live, std::int64_t step);
  void post_notes(Live& live);
  void event(const std::string& kind, const std::string& detail);
  std::string get(const std::string& key);
  std::string key(const std::string& rest) const;

  RankContext& context_;
  std::int64_t generation_;
  std::vector<std::int32_t> members_;
  int me_;
  ir::Program program_;
  std::int64_t until_ = 0;
  int events_ = 0;
  std::vector<StateBank> files_;  ///< Of local checkpoints, where this member offers them.
};

}  // namespace orrery::executor
