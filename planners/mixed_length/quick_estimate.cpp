#include "planners/mixed_length/quick_estimate.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace orrery::planners {

const QuickEstimate::Times& QuickEstimate::Kind::at(std::int64_t length) {
  const auto [place, added] = times.try_emplace(length);
  if (!added) return place->second;
  for (const auto& passes : strategy->cost(0, length)) {
    place->second.slowest = std::max(place->second.slowest, passes.both());
    place->second.rest += passes.both();
  }
  place->second.rest -= place->second.slowest;
  return place->second;
}

QuickEstimate::Kind& QuickEstimate::of(const PipelineKind& kind, ir::Recompute recompute,
                                       int zero) {
  const auto [place, added] = kinds_.try_emplace(
      {kind.tensor_parallel, kind.stages, kind.sequence, kind.sequence_degree, recompute, zero});
  if (!added) return place->second;
  LengthStrategy alone{input_.context, {kind}};
  alone.pipelines.front().count =
      input_.pricer.cluster().size() / (kind.tensor_parallel * kind.sequence_degree * kind.stages);
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
  struct Load {
    Kind* kind;
    Seconds sum;
    Seconds rest;
  };
  std::vector<Load> loads;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    for (int i = 0; i < pipelines[k].count; ++i) loads.push_back({kinds[k], {}, {}});
  }
  Seconds longest;
  for (const std::int64_t length : lengths) {
    Load* best = nullptr;
    Seconds best_end;
    for (Load& load : loads) {
      if (length > load.kind->strategy->limit(0)) continue;
      const Times& time = load.kind->at(length);
      const Seconds end = load.sum + time.slowest + std::max(load.rest, time.rest);
      if (best != nullptr && end >= best_end) continue;
      best = &load;
      best_end = end;
    }
    const Times& time = best->kind->at(length);  // Some pipeline holds the longest one.
    best->sum += time.slowest;
    best->rest = std::max(best->rest, time.rest);
    longest = std::max(longest, best_end);
  }
  return longest;
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
