#include "models/sharding/communicate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/base/check.h"
#include "models/sharding/communicate_parts.h"

namespace orrery::models {
namespace {

using resolution::batch;
using resolution::change_bottom;
using resolution::change_top;
using resolution::expand;
using resolution::Outcome;
using resolution::Steps;
using Rule = Refusal::Rule;

/// First the states, then the top tier. [section 4.2, II]
Outcome change_both(const Annotation& from, const Annotation& to, const Shape& shape,
                    const BatchedOptions& options) {
  const Annotation middle{to.subgroups, from.hetero_axis, from.shares};
  const bool partial = has_partial(from) || has_partial(to);
  const auto invalid = validate(middle, shape);
  const auto whole = [&]() -> Outcome {
    return Steps{batch(expand(from, shape), expand(to, shape), Tier::top, -1, options)};
  };
  if (invalid && !partial) return whole();
  if (invalid) {
    return Refusal{
        Rule::no_split_collective,
        fmt::format("no state between {} and {}: {}", to_string(from), to_string(to), *invalid)};
  }
  Outcome bottom = change_bottom(from, middle, shape, options);
  if (std::holds_alternative<Refusal>(bottom)) return bottom;
  Outcome top = change_top(middle, to, shape, options);
  if (std::holds_alternative<Refusal>(top)) return top;
  Steps steps = std::get<Steps>(std::move(bottom));
  for (CommunicationStep& step : std::get<Steps>(top)) {
    if (step.kind == CommunicationKind::batched_send_receive && !partial) return whole();
    step.phase = 1;
    steps.push_back(std::move(step));
  }
  return steps;
}

Annotation without_single_shards(Annotation annotation) {
  for (Subgroup& subgroup : annotation.subgroups) {
    std::erase_if(subgroup.states, [](const AxisShards& entry) { return entry.shards == 1; });
  }
  return annotation;
}

}  // namespace

std::string_view to_string(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::identity:
      return "identity";
    case CommunicationKind::send_receive:
      return "SR";
    case CommunicationKind::all_reduce:
      return "AR";
    case CommunicationKind::reduce_scatter:
      return "RS";
    case CommunicationKind::all_gather:
      return "AG";
    case CommunicationKind::split_all_reduce:
      return "SplitAR";
    case CommunicationKind::split_reduce_scatter:
      return "SplitRS";
    case CommunicationKind::split_all_gather:
      return "SplitAG";
    case CommunicationKind::batched_send_receive:
      return "BSR";
  }
  ORRERY_CHECK(false, "kind {}", static_cast<int>(kind));
}

bool is_collective(CommunicationKind kind) {
  return kind != CommunicationKind::identity && kind != CommunicationKind::send_receive &&
         kind != CommunicationKind::batched_send_receive;
}

std::vector<std::vector<int>> groups(const CommunicationStep& step) {
  std::vector<std::vector<int>> found;
  std::set<std::vector<int>> seen;
  for (const SliceMove& move : step.moves) {
    if (seen.insert(move.devices).second) found.push_back(move.devices);
  }
  return found;
}

std::variant<Steps, Refusal> communicate(const Annotation& from_given, const Annotation& to_given,
                                         const Shape& shape, const BatchedOptions& options) {
  if (auto problem = validate(from_given, shape)) {
    return Refusal{Rule::invalid, "source: " + *problem};
  }
  if (auto problem = validate(to_given, shape)) {
    return Refusal{Rule::invalid, "destination: " + *problem};
  }
  const Annotation from = without_single_shards(from_given);
  const Annotation to = without_single_shards(to_given);
  if (same_top_tier(from, to)) return change_bottom(from, to, shape, options);
  if (from.hetero_size() == to.hetero_size() && same_device_groups(from, to)) {
    const bool same_states =
        std::equal(from.subgroups.begin(), from.subgroups.end(), to.subgroups.begin());
    return same_states ? change_top(from, to, shape, options)
                       : change_both(from, to, shape, options);
  }
  if (has_partial(from) || has_partial(to)) {
    return Refusal{Rule::changed_groups, fmt::format("Partial, and {}: sends cannot add ({} to {})",
                                                     from.hetero_size() == to.hetero_size()
                                                         ? "the device groups change"
                                                         : "the number of subgroups changes",
                                                     to_string(from), to_string(to))};
  }
  return Steps{batch(expand(from, shape), expand(to, shape), Tier::top, -1, options)};
}

}  // namespace orrery::models
