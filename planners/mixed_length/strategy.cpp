#include "planners/mixed_length/strategy.h"

#include <fmt/format.h>

#include "models/config/document.h"

namespace orrery::planners {

namespace {

/// GPUs of equal pipelines: as many as the nodes of an entry of a cluster file can have.
constexpr double kMostStrategyDevices = 1 << 26;

}  // namespace

int devices_of(const PipelineKind& kind) {
  return kind.tensor_parallel * kind.sequence_degree * kind.stages;
}

void describe(config::Visitor& v, PipelineKind& kind) {
  v.title("Pipelines");
  v.doc("Equal pipelines on consecutive devices.");
  v.optional("count", kind.count, "how many");
  v.optional("tensor_parallel", kind.tensor_parallel, "degree");
  v.optional("stages", kind.stages, "pipeline stages");
  v.optional("sequence", kind.sequence, "how the sequence is split inside a group");
  v.optional("sequence_degree", kind.sequence_degree, "groups of ranks that share a sequence");
  v.at_least("count", kind.count, 1);
  v.at_least("tensor_parallel", kind.tensor_parallel, 1);
  v.at_least("stages", kind.stages, 1);
  v.at_least("sequence_degree", kind.sequence_degree, 1);
  const double devices =
      1.0 * kind.count * kind.tensor_parallel * kind.stages * kind.sequence_degree;
  if (v.reading() && v.good() && devices > kMostStrategyDevices) {
    v.problem("count", fmt::format("{:.0f} GPUs in all, at most {:.0f} are possible", devices,
                                   kMostStrategyDevices));
  }
}

void describe(config::Visitor& v, LengthStrategy& strategy) {
  v.title("Strategy");
  v.required("longest", strategy.longest, "longest sequence that it serves, tokens");
  v.required("pipelines", strategy.pipelines, "on consecutive devices");
  v.at_least("longest", strategy.longest, std::int64_t{1});
  if (v.reading() && v.good() && strategy.pipelines.empty()) v.problem("pipelines", "none");
}

void describe(config::Visitor& v, StrategySearch& search) {
  v.title("Search of strategies");
  v.optional("borders", search.borders,
             "ends of intervals of lengths, tokens, ascending; empty: the context halved four "
             "times");
  v.optional("max_strategies", search.max_strategies, "in a set");
  v.optional("max_kinds", search.max_kinds, "of pipelines in a strategy (hetu_b)");
  v.optional("max_tensor_parallel", search.max_tensor_parallel, "degree; 0: all devices");
  v.optional("max_stages", search.max_stages, "pipeline stages");
  v.optional("sample_steps", search.sample_steps, "steps that sets of strategies are judged by");
  v.optional("balanced", search.balanced, "candidates of each interval that are balanced in full");
  v.optional("finalists", search.finalists, "sets of strategies that are simulated");
  v.between("max_strategies", search.max_strategies, 1, 6);
  v.between("max_kinds", search.max_kinds, 1, 3);
  v.not_negative("max_tensor_parallel", search.max_tensor_parallel);
  v.at_least("max_stages", search.max_stages, 1);
  v.between("sample_steps", search.sample_steps, 1, 1000);
  v.at_least("balanced", search.balanced, 1);
  v.at_least("finalists", search.finalists, 1);
  std::int64_t before = 0;
  for (const std::int64_t border : search.borders) {
    if (v.reading() && border <= before) return v.problem("borders", "they do not ascend from 1");
    before = border;
  }
}

void describe(config::Visitor& v, StrategySet& set) {
  v.title("Strategies");
  config::Value given =
      set.searched() ? config::Value::scalar("search") : config::to_value(set.strategies);
  v.required(
      "strategies", given,
      "ascending by the longest sequence that they serve, {longest, pipelines}; or `search`");
  v.optional("search", set.search, "how strategies are searched");
  v.optional("recompute", set.recompute, "tried in this order; the first that fits is used");
  v.optional("zero_stages", set.zero_stages, "tried in this order under each recomputation");
  if (!v.reading()) return;
  const bool searched = given.is_scalar() && given.text == "search";
  if (!searched && v.given("strategies")) v.required("strategies", set.strategies, "");
  if (!v.good()) return;
  std::int64_t before = 0;
  for (const LengthStrategy& strategy : set.strategies) {
    if (strategy.longest <= before) return v.problem("strategies", "lengths do not ascend");
    before = strategy.longest;
  }
  if (set.strategies.empty() && !searched) v.problem("strategies", "none");
  if (!searched && v.given("search")) {
    v.problem("search", "the strategies are given", "`strategies: search` searches them");
  }
  if (set.recompute.empty()) v.problem("recompute", "nothing is allowed");
  if (set.zero_stages.empty()) v.problem("zero_stages", "nothing is allowed");
  for (const int stage : set.zero_stages) {
    if (stage < 0 || stage > 3) v.problem("zero_stages", "must be from 0 to 3");
  }
}

std::string in_words(const std::vector<PipelineKind>& pipelines) {
  std::string text;
  for (const PipelineKind& kind : pipelines) {
    text += fmt::format("{}{} x TP{}", text.empty() ? "" : ", ", kind.count, kind.tensor_parallel);
    if (kind.sequence_degree > 1) {
      text += fmt::format(" {} {}", ir::name_of(kind.sequence), kind.sequence_degree);
    }
    if (kind.stages > 1) text += fmt::format(" PP{}", kind.stages);
  }
  return text;
}

}  // namespace orrery::planners
