#include "planners/mixed_length/quick_estimate.h"

#include <utility>
#include <variant>

#include "planners/kit/integers.h"

namespace orrery::planners {

const SequenceTime& QuickEstimate::Kind::at(std::int64_t length) {
  const auto [place, added] = times.try_emplace(length);
  if (added) place->second = sequence_time(*strategy, 0, length);
  return place->second;
}

QuickEstimate::Kind& QuickEstimate::of(const PipelineKind& kind, ir::Recompute recompute,
                                       int zero) {
  const auto [place, added] = kinds_.try_emplace(
      {kind.tensor_parallel, kind.stages, kind.sequence, kind.sequence_degree, recompute, zero});
  if (!added) return place->second;
  LengthStrategy alone{input_.context, {kind}};
  alone.pipelines.front().count = input_.pricer.cluster().size() / devices_of(kind);
  auto made = PreparedStrategy::make_with(input_, alone, recompute, zero);
  if (auto* strategy = std::get_if<PreparedStrategy>(&made)) {
    place->second.strategy = std::move(*strategy);
  }
  return place->second;
}

bool QuickEstimate::holds(const std::vector<Kind*>& kinds, std::int64_t longest) {
  bool any = false;
  for (const Kind* kind : kinds) {
    if (!kind->strategy || kind->strategy->limit(0) == 0) return false;
    any = any || kind->strategy->limit(0) >= longest;
  }
  return any;
}

Seconds QuickEstimate::spread(const std::vector<PipelineKind>& pipelines,
                              const std::vector<Kind*>& kinds,
                              const std::vector<std::int64_t>& lengths) {
  std::vector<Kind*> all;  // By pipeline.
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    all.insert(all.end(), pipelines[k].count, kinds[k]);
  }
  return spread_longest_first(
      all.size(), lengths, [&](std::size_t p) { return all[p]->strategy->limit(0); },
      [&](std::size_t p, std::int64_t length) -> const SequenceTime& { return all[p]->at(length); },
      [](std::size_t, std::int64_t) {});
}

std::optional<Seconds> QuickEstimate::operator()(const std::vector<PipelineKind>& pipelines,
                                                 std::int64_t longest,
                                                 const std::vector<std::int64_t>& lengths) {
  for (const ir::Recompute recompute : input_.set.recompute) {
    for (const int zero : input_.set.zero_stages) {
      std::vector<Kind*> kinds;
      for (const PipelineKind& kind : pipelines) kinds.push_back(&of(kind, recompute, zero));
      if (holds(kinds, longest)) return spread(pipelines, kinds, lengths);
    }
  }
  return std::nullopt;
}

}  // namespace orrery::planners
