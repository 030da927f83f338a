#include "experiments/study/replay_score.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "experiments/study/run_tasks.h"
#include "experiments/study/summary.h"
#include "models/base/hash.h"
#include "models/base/ids.h"
#include "models/config/document.h"
#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

/// "40 s", "12.4 min", "3 h".
std::string interval_in_words(Seconds every) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  if (every.value < 2 * kMinute) return fmt::format("{:.3g} s", every.value);
  if (every.value < 2 * kHour) return fmt::format("{:.3g} min", every.value / kMinute);
  return fmt::format("{:.3g} h", every.value / kHour);
}

ReplayScore score_of(const ReplayOutcome& outcome) {
  ReplayScore score;
  score.infeasible = outcome.infeasible;
  if (outcome.infeasible) return score;
  const sim::ReplayResult& result = outcome.result;
  score.horizon = to_seconds(result.horizon);
  score.tokens = result.tokens;
  score.dollars = result.dollars;
  score.priced = result.priced;
  if (result.iterations > 0) {
    score.undisturbed_tokens_per_second =
        rounded(static_cast<double>(result.tokens) / static_cast<double>(result.iterations) /
                result.reference.value);
  }
  score.interruptions = result.interruptions;
  for (const sim::InterruptionRecord& record : result.log) {
    score.lost_iterations += record.rolled_back;
  }
  for (std::size_t b = 0; b < sim::kBuckets; ++b) {
    const auto bucket = static_cast<sim::Bucket>(b);
    score.wall[sim::name_of(bucket)] =
        rounded(to_seconds(result.wall[index_of(bucket)]) / score.horizon);
  }
  for (const CheckpointTaken& level : outcome.checkpoints) {
    std::string words =
        fmt::format("{} every {}", ir::name_of(level.location), interval_in_words(level.every));
    std::replace(words.begin(), words.end(), '_', ' ');
    const bool known = std::find(score.checkpoints.begin(), score.checkpoints.end(), words) !=
                       score.checkpoints.end();  // Of other shards, or of a peer's memory.
    if (!known) score.checkpoints.push_back(std::move(words));
  }
  return score;
}

/// Of what a replay came to: all that decides it.
std::string key_of(const ReplayTask& task) {
  ReplayRun run{task.loaded->spec, {task.policy, {}}, task.how};
  return content_digest("score " + replay_identity(*task.loaded, std::move(run)).hash());
}

bool remembers(const ReplayTask& task) {
  return is_repeatable({task.loaded->spec, {task.policy, {}}, task.how});
}

}  // namespace

void describe(config::Visitor& v, ReplayScore& score) {
  v.optional("infeasible", score.infeasible, "why the policy cannot run; the rest is empty then");
  v.required("horizon", score.horizon, "");
  v.required("tokens", score.tokens, "that count");
  v.required("dollars", score.dollars, "");
  v.required("priced", score.priced, "whether all GPU types have prices");
  v.required("undisturbed_tokens_per_second", score.undisturbed_tokens_per_second,
             "of the fastest plan of the replay");
  v.required("interruptions", score.interruptions, "");
  v.required("lost_iterations", score.lost_iterations, "");
  v.required("wall", score.wall, "shares of the horizon");
  v.required("checkpoints", score.checkpoints, "in words");
}

std::vector<ReplayScore> score_replays(const std::vector<ReplayTask>& tasks,
                                       const models::AnswerStore* answers,
                                       const std::function<void(std::size_t)>& on_done) {
  std::vector<ReplayScore> scores(tasks.size());
  std::vector<std::string> keys(tasks.size());
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::optional<std::string> known;
    if (answers != nullptr && remembers(tasks[i])) {
      keys[i] = key_of(tasks[i]);
      known = answers->find(keys[i]);
    }
    if (known) {
      scores[i] = delivered<ReplayScore>(*known, tasks[i].name);
      on_done(i);
    } else {
      missing.push_back(i);
    }
  }
  run_children(
      missing.size(), [&](std::size_t i) { return tasks[missing[i]].name; },
      [&](std::size_t i) {
        signal(SIGINT, SIG_DFL);  // A replay that is stopped has no part that could be used.
        const ReplayTask& task = tasks[missing[i]];
        ReplayScore score =
            score_of(replay_once(*task.loaded, task.policy, task.how, answers, [](double) {}));
        return config::dump(score);
      },
      [&](std::size_t i, const std::string& bytes) {
        const std::size_t at = missing[i];
        scores[at] = delivered<ReplayScore>(bytes, tasks[at].name);
        if (!keys[at].empty()) answers->keep(keys[at], bytes);
        on_done(at);
      });
  return scores;
}

}  // namespace orrery::experiments
