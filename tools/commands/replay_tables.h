/// What `orrery replay` prints.
#pragma once
#include <string>

#include "experiments/study/replay.h"
#include "experiments/study/replay_ranking.h"

namespace orrery::tools {

/// Ranking, buckets, policies without a plan, where the wall-clock time went.
std::string replay_text(const experiments::ReplayStudy& study,
                        const experiments::ReplayStudyResult& result,
                        const experiments::Ranking& ranking);
/// The same as JSON.
std::string replay_document(const experiments::ReplayStudy& study,
                            const experiments::ReplayStudyResult& result,
                            const experiments::Ranking& ranking);

}  // namespace orrery::tools
