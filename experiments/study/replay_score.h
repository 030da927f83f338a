/// What a replay came to, in the few numbers by which replays are compared, remembered from call to
/// call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/replay_session.h"

namespace orrery::experiments {

struct ReplayScore {
  std::optional<models::Infeasible> infeasible;  ///< Instead of the rest.
  Seconds horizon;
  std::int64_t tokens = 0;
  Dollars dollars;
  bool priced = false;
  /// Of the fastest undisturbed plan of the replay (ReplayResult::reference); 0 without iterations.
  double undisturbed_tokens_per_second = 0;
  std::int64_t interruptions = 0;
  std::int64_t lost_iterations = 0;
  std::map<std::string, double> wall;    ///< Shares of the horizon by sim::Bucket.
  std::vector<std::string> checkpoints;  ///< In words: "cloud every 12.4 min".

  double tokens_per_second() const { return static_cast<double>(tokens) / horizon.value; }
  double tokens_per_dollar() const {
    return dollars.value > 0 ? static_cast<double>(tokens) / dollars.value : 0;
  }
};
void describe(config::Visitor& v, ReplayScore& score);

/// A replay to be done.
struct ReplayTask {
  std::string name;  ///< For messages.
  std::shared_ptr<const LoadedReplayCase> loaded;
  ReplayPolicy policy;
  ReplayOptions how;
};

/// Does them in forked children, as many at once as there are cores, those that `answers` knows
/// aside; the scores in their order. `on_done` hears each position as its replay is done. Throws
/// std::runtime_error if a child fails.
std::vector<ReplayScore> score_replays(const std::vector<ReplayTask>& tasks,
                                       const models::AnswerStore* answers,
                                       const std::function<void(std::size_t)>& on_done);

}  // namespace orrery::experiments
