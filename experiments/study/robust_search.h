/// The search of robust planning: plans, then candidates of plan, policy and checkpoint interval,
/// then a race of them over replays, then other traces that judge its winner (robust_plan.h).
#pragma once
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/replay_policy.h"
#include "experiments/study/replay_session.h"
#include "experiments/study/robust_result.h"
#include "experiments/study/robust_settings.h"
#include "models/interfaces/answer_store.h"

namespace orrery::experiments {

/// What a search works on.
struct RobustInputs {
  const RobustSettings& settings;
  const Call& call;
  LoadedRun run;          ///< Without a plan.
  LoadedReplayCase base;  ///< That all candidates are replayed in, without a plan.
  std::vector<ReplayPolicy> policies;
  const models::AnswerStore* answers;  ///< May be null.
};

/// Canceled, it comes back with the best so far. `least_tokens_per_second`: what the fastest plan
/// must reach undisturbed; if it does not, nothing is replayed. 0: anything.
RobustResult search_robust(RobustInputs inputs, double least_tokens_per_second);

}  // namespace orrery::experiments
