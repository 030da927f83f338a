/// What a rank process keeps from one generation to the next. Private to executor/launcher.
#pragma once
#include <set>
#include <vector>

#include "executor/launcher/checkpoint.h"
#include "executor/launcher/order_watcher.h"
#include "executor/launcher/rank_process.h"
#include "executor/launcher/reports.h"
#include "executor/launcher/settings.h"
#include "executor/launcher/state.h"
#include "executor/net/store.h"

namespace orrery::executor {

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

}  // namespace orrery::executor
