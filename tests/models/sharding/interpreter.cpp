#include "tests/models/sharding/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using Problem = std::optional<std::string>;
using Places = std::vector<std::optional<double>>;

std::size_t at(std::int64_t element) { return static_cast<std::size_t>(element); }

std::vector<std::int64_t> list(const std::vector<Slice>& slices) {
  std::vector<std::int64_t> all;
  for (const Slice& slice : slices) {
    for (std::int64_t x = slice.begin; x < slice.end; ++x) all.push_back(x);
  }
  return all;
}

Problem check_shape(const GroupStep& step) {
  const auto wanted = list(step.slices);
  if (wanted.empty()) return "it moves nothing";
  if (!std::is_sorted(step.slices.begin(), step.slices.end())) return "its slices are not sorted";
  if (std::adjacent_find(wanted.begin(), wanted.end(), std::greater_equal<>()) != wanted.end()) {
    return "its slices overlap";
  }
  auto members = step.group;
  std::sort(members.begin(), members.end());
  if (members.size() < 2) return "its group has fewer than two members";
  if (std::adjacent_find(members.begin(), members.end()) != members.end()) {
    return "its group names an owner twice";
  }
  const bool pair = step.kind == StepKind::send_receive;
  const bool has_source = pair || step.kind == StepKind::broadcast;
  if (step.source != (has_source ? step.group[0] : -1)) return "its source is wrong";
  if (pair && step.group.size() != 2) return "its group is not a pair";
  if (step.destination != (pair ? step.group[1] : -1)) return "its destination is wrong";
  const bool has_parts = step.kind == StepKind::reduce_scatter || step.kind == StepKind::all_gather;
  if (step.parts.size() != (has_parts ? step.group.size() : 0)) return "its parts are miscounted";
  if (!has_parts) return std::nullopt;
  std::vector<std::int64_t> tiles;
  for (const auto& part : step.parts) {
    const auto more = list(part);
    tiles.insert(tiles.end(), more.begin(), more.end());
  }
  std::sort(tiles.begin(), tiles.end());
  if (tiles != wanted) return "its parts do not tile its slices";
  return std::nullopt;
}

Problem missing(int owner, std::int64_t x) {
  return fmt::format("owner {} does not hold element {}", owner, x);
}

/// Copies elements from one member to all others.
Problem copy(const GroupStep& step, int source, const std::vector<Slice>& slices,
             Buffers& buffers) {
  const Places& from = buffers[source];
  for (std::int64_t x : list(slices)) {
    if (at(x) >= from.size() || !from[at(x)]) return missing(source, x);
    for (int member : step.group) {
      Places& to = buffers[member];
      to.resize(from.size());
      to[at(x)] = from[at(x)];
    }
  }
  return std::nullopt;
}

Problem reduce(const GroupStep& step, Buffers& buffers) {
  for (std::int64_t x : list(step.slices)) {
    double sum = 0;
    for (int member : step.group) {
      Places& places = buffers[member];
      if (at(x) >= places.size() || !places[at(x)]) return missing(member, x);
      sum += *places[at(x)];
    }
    const bool all = step.kind == StepKind::all_reduce;
    for (int member : step.group) {
      buffers[member][at(x)] = all ? std::optional<double>(sum) : std::nullopt;
    }
    if (all) continue;
    for (std::size_t i = 0; i < step.parts.size(); ++i) {
      const bool keeps =
          std::any_of(step.parts[i].begin(), step.parts[i].end(),
                      [&](const Slice& slice) { return slice.begin <= x && x < slice.end; });
      if (keeps) buffers[step.group[i]][at(x)] = sum;
    }
  }
  return std::nullopt;
}

Problem apply(const GroupStep& step, Buffers& buffers) {
  if (auto problem = check_shape(step)) return problem;
  switch (step.kind) {
    case StepKind::all_reduce:
    case StepKind::reduce_scatter:
      return reduce(step, buffers);
    case StepKind::broadcast:
    case StepKind::send_receive:
      return copy(step, step.source, step.slices, buffers);
    case StepKind::all_gather:
      for (std::size_t i = 0; i < step.parts.size(); ++i) {
        if (auto problem = copy(step, step.group[i], step.parts[i], buffers)) return problem;
      }
      return std::nullopt;
  }
  return "its kind is unknown";
}

}  // namespace

Buffers materialize(const Layout& layout, const Summands& summands) {
  Buffers buffers;
  for (const Piece& piece : layout.pieces) {
    const auto values = summands.find(piece.partial);
    ORRERY_CHECK(values != summands.end(), "no numbers for summand {}", piece.partial);
    ORRERY_CHECK(values->second.size() == at(layout.length), "{} numbers for {} elements",
                 values->second.size(), layout.length);
    Places& places = buffers[piece.owner];
    places.resize(at(layout.length));
    for (std::int64_t x : list({piece.slice})) places[at(x)] = values->second[at(x)];
  }
  return buffers;
}

std::optional<std::string> execute(const std::vector<GroupStep>& steps, Buffers& buffers) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (auto problem = apply(steps[i], buffers)) {
      return fmt::format("step {} ({}): {}", i, to_string(steps[i].kind), *problem);
    }
  }
  return std::nullopt;
}

std::optional<std::string> compare(const Layout& layout, const Summands& summands,
                                   const Buffers& buffers) {
  std::vector<double> total(at(layout.length), 0.0);
  for (const auto& [id, values] : summands) {
    std::transform(values.begin(), values.end(), total.begin(), total.begin(), std::plus<>());
  }
  for (const Piece& piece : layout.pieces) {
    const std::vector<double>& wanted =
        piece.partial == kFullValue ? total : summands.at(piece.partial);
    const auto places = buffers.find(piece.owner);
    for (std::int64_t x : list({piece.slice})) {
      if (places == buffers.end() || at(x) >= places->second.size() || !places->second[at(x)]) {
        return missing(piece.owner, x);
      }
      const double have = *places->second[at(x)];
      if (have == wanted[at(x)]) continue;
      return fmt::format("owner {}, element {}: has {}, needs {}", piece.owner, x, have,
                         wanted[at(x)]);
    }
  }
  return std::nullopt;
}

}  // namespace orrery::models
