#include "tests/models/sharding/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using Problem = std::optional<std::string>;
/// Summands of one element.
using Sum = std::map<int, double>;

std::size_t count(const Shape& shape) {
  std::size_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

/// Pieces that add up with each other: all of them under HDim Partial, else those of a subgroup.
std::vector<std::vector<BoxPiece>> sums(const Annotation& annotation, const Shape& shape) {
  const auto all = pieces(annotation, shape);
  if (annotation.hetero_size() > 1 && annotation.hetero_axis == kPartial) return {all};
  std::vector<std::vector<BoxPiece>> result;
  auto next = all.begin();
  for (const Subgroup& subgroup : annotation.subgroups) {
    const auto size = static_cast<std::ptrdiff_t>(subgroup.devices.size());
    result.emplace_back(next, next + size);
    next += size;
  }
  return result;
}

std::optional<double> read(const Buffers& buffers, int device, std::size_t element) {
  const auto places = buffers.find(device);
  if (places == buffers.end() || element >= places->second.size()) return std::nullopt;
  return places->second[element];
}

Problem check_form(const SliceMove& move, CommunicationKind kind) {
  const std::set<int> members(move.devices.begin(), move.devices.end());
  if (members.size() != move.devices.size()) return "a device appears twice in a group";
  if (members.size() < 2) return "a group has fewer than two devices";
  if (!is_collective(kind) && members.size() != 2) return "a send is no pair";
  const bool needs_root =
      kind != CommunicationKind::all_reduce && kind != CommunicationKind::split_all_reduce;
  if (is_collective(kind) && needs_root && members.count(move.root) == 0) {
    return "the root of a slice is not in its group";
  }
  return std::nullopt;
}

/// What the move writes for one element: who, and the number.
Problem move_element(const SliceMove& move, CommunicationKind kind, std::size_t element,
                     const Buffers& before, Sum& written) {
  const bool reduces = kind == CommunicationKind::all_reduce ||
                       kind == CommunicationKind::reduce_scatter ||
                       kind == CommunicationKind::split_all_reduce ||
                       kind == CommunicationKind::split_reduce_scatter;
  const bool gathers =
      kind == CommunicationKind::all_gather || kind == CommunicationKind::split_all_gather;
  double value = 0;
  std::vector<int> readers = move.devices;
  if (!reduces) readers = {gathers ? move.root : move.devices.front()};
  for (const int device : readers) {
    const auto number = read(before, device, element);
    if (!number) return fmt::format("device {} does not hold element {}", device, element);
    value += *number;
  }
  std::vector<int> receivers = move.devices;
  if (reduces && move.root >= 0) receivers = {move.root};
  if (!is_collective(kind)) receivers = {move.devices.back()};
  for (const int device : receivers) written[device] = value;
  return std::nullopt;
}

Problem apply(const CommunicationStep& step, const Shape& shape, const Buffers& before,
              std::map<std::pair<int, std::size_t>, double>& written) {
  if (step.kind == CommunicationKind::identity) {
    return step.moves.empty() ? Problem() : Problem("an identity moves something");
  }
  if (step.moves.empty()) return "it moves nothing";
  for (const SliceMove& move : step.moves) {
    if (auto problem = check_form(move, step.kind)) return problem;
    Problem problem;
    for_each_element(move.box, shape, [&](std::size_t element) {
      Sum now;
      if (!problem) problem = move_element(move, step.kind, element, before, now);
      for (const auto& [device, value] : now) {
        const auto [place, fresh] = written.insert({{device, element}, value});
        if (!fresh && place->second != value) {
          problem = fmt::format("device {} gets two values for element {}", device, element);
        }
      }
    });
    if (problem) return problem;
  }
  return std::nullopt;
}

/// Whether the summands of some pieces add up, element by element.
Problem compare_sum(const std::vector<BoxPiece>& some, const Shape& shape, const Values& values,
                    const Buffers& buffers) {
  std::vector<Sum> summands(values.size());
  Problem problem;
  for (const BoxPiece& piece : some) {
    for_each_element(piece.box, shape, [&](std::size_t element) {
      const auto have = read(buffers, piece.device, element);
      if (!have) {
        problem = fmt::format("device {} does not hold element {}", piece.device, element);
        return;
      }
      const auto [place, fresh] = summands[element].insert({piece.partial, *have});
      if (!fresh && place->second != *have) {
        problem = fmt::format("device {}, element {}: has {}, another replica {}", piece.device,
                              element, *have, place->second);
      }
    });
  }
  for (std::size_t element = 0; element < values.size() && !problem; ++element) {
    if (summands[element].empty()) continue;
    double sum = 0;
    for (const auto& [summand, value] : summands[element]) sum += value;
    if (sum != values[element]) {
      problem = fmt::format("element {} on device {} and its partners: {}, needs {}", element,
                            some.front().device, sum, values[element]);
    }
  }
  return problem;
}

}  // namespace

Buffers materialize(const Annotation& annotation, const Shape& shape, const Values& values,
                    Rng& rng) {
  ORRERY_CHECK(values.size() == count(shape), "{} numbers for {} elements", values.size(),
               count(shape));
  Buffers buffers;
  for (const auto& some : sums(annotation, shape)) {
    std::vector<Sum> summands(values.size());
    for (const BoxPiece& piece : some) {
      for_each_element(piece.box, shape, [&](std::size_t e) { summands[e][piece.partial] = 0; });
    }
    for (std::size_t e = 0; e < values.size(); ++e) {
      double rest = values[e];
      std::size_t left = summands[e].size();
      for (auto& [summand, value] : summands[e]) {
        value = --left == 0 ? rest : static_cast<double>(rng.integer(-50, 50));
        rest -= value;
      }
    }
    for (const BoxPiece& piece : some) {
      auto& places = buffers[piece.device];
      places.resize(values.size());
      for_each_element(piece.box, shape,
                       [&](std::size_t e) { places[e] = summands[e].at(piece.partial); });
    }
  }
  return buffers;
}

Problem execute(const std::vector<CommunicationStep>& steps, const Shape& shape, Buffers& buffers) {
  std::size_t next = 0;
  while (next < steps.size()) {
    const int phase = steps[next].phase;
    std::map<std::pair<int, std::size_t>, double> written;
    for (; next < steps.size() && steps[next].phase == phase; ++next) {
      if (auto problem = apply(steps[next], shape, buffers, written)) {
        return fmt::format("step {} ({}): {}", next, to_string(steps[next].kind), *problem);
      }
    }
    if (next < steps.size() && steps[next].phase < phase) return "its phases do not ascend";
    for (const auto& [place, value] : written) {
      auto& places = buffers[place.first];
      places.resize(count(shape));
      places[place.second] = value;
    }
  }
  return std::nullopt;
}

Problem compare(const Annotation& annotation, const Shape& shape, const Values& values,
                const Buffers& buffers) {
  for (const auto& some : sums(annotation, shape)) {
    if (auto problem = compare_sum(some, shape, values, buffers)) return problem;
  }
  return std::nullopt;
}

Buffers materialize(const Layout& layout, const Summands& summands) {
  Buffers buffers;
  for (const Piece& piece : layout.pieces) {
    const Values& values = summands.at(piece.partial);
    auto& places = buffers[piece.owner];
    places.resize(values.size());
    for_each_element({piece.slice}, {layout.length}, [&](std::size_t e) { places[e] = values[e]; });
  }
  return buffers;
}

Problem execute(const std::vector<GroupStep>& steps, std::int64_t length, Buffers& buffers) {
  using Kind = CommunicationKind;
  std::vector<CommunicationStep> all;
  for (const GroupStep& step : steps) {
    const Kind kind = step.kind == StepKind::all_reduce       ? Kind::all_reduce
                      : step.kind == StepKind::reduce_scatter ? Kind::reduce_scatter
                      : step.kind == StepKind::all_gather     ? Kind::all_gather
                                                              : Kind::send_receive;
    std::vector<SliceMove> moves;
    for (const Slice& slice : step.slices) {
      if (kind == Kind::all_reduce) moves.push_back({{slice}, step.group, -1});
      for (std::size_t m = 1; kind == Kind::send_receive && m < step.group.size(); ++m) {
        moves.push_back({{slice}, {step.source, step.group[m]}, -1});
      }
    }
    std::int64_t kept = 0;
    for (std::size_t m = 0; m < step.parts.size(); ++m) {
      kept += elements(step.parts[m]);
      for (const Slice& slice : step.parts[m]) {
        moves.push_back({{slice}, step.group, step.group[m]});
      }
    }
    if (!step.parts.empty() && kept != elements(step.slices)) return "parts do not tile their step";
    all.push_back({kind, Tier::top, -1, static_cast<int>(all.size()), step.group, moves});
  }
  return execute(all, {length}, buffers);
}

Problem compare(const Layout& layout, const Summands& summands, const Buffers& buffers) {
  Values total(layout.length, 0.0);
  for (const auto& [id, values] : summands) {
    std::transform(values.begin(), values.end(), total.begin(), total.begin(), std::plus<>());
  }
  Problem problem;
  for (const Piece& piece : layout.pieces) {
    const Values& wanted = piece.partial == kFullValue ? total : summands.at(piece.partial);
    for_each_element({piece.slice}, {layout.length}, [&](std::size_t e) {
      const auto have = read(buffers, piece.owner, e);
      if (problem || have == wanted[e]) return;
      problem = fmt::format("owner {}, element {}: has {}, needs {}", piece.owner, e,
                            have ? fmt::format("{}", *have) : "nothing", wanted[e]);
    });
  }
  return problem;
}

}  // namespace orrery::models
