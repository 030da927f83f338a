#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/sharding/communicate.h"
#include "tests/models/sharding/interpreter.h"
#include "tests/models/sharding/random_annotations.h"

namespace orrery::models::testing::communicate_law_test {
namespace {

using Rule = Refusal::Rule;
using Steps = std::vector<CommunicationStep>;

constexpr int kDevices = 8;

std::string describe(const Shape& shape, const Annotation& from, const Annotation& to) {
  return fmt::format("shape {}\nfrom {}\nto   {}", fmt::join(shape, " "), to_string(from),
                     to_string(to));
}

/// Whether groups of one device per summand exist whose targets are equal (AR) or tile their
/// common source (RS): by trying all.
bool some_reduction(const std::vector<BoxPiece>& from, const std::vector<BoxPiece>& to,
                    std::vector<bool> taken) {
  const std::size_t first = std::find(taken.begin(), taken.end(), false) - taken.begin();
  if (first == taken.size()) return true;
  std::set<int> summands;
  for (const BoxPiece& piece : from) summands.insert(piece.partial);
  std::vector<std::vector<std::size_t>> groups{{first}};
  for (std::size_t size = 1; size < summands.size(); ++size) {
    std::vector<std::vector<std::size_t>> longer;
    for (const auto& group : groups) {
      for (std::size_t j = 0; j < from.size(); ++j) {
        const bool fits = !taken[j] && from[j].box == from[first].box &&
                          std::none_of(group.begin(), group.end(), [&](std::size_t other) {
                            return from[other].partial == from[j].partial;
                          });
        if (!fits) continue;
        longer.push_back(group);
        longer.back().push_back(j);
      }
    }
    groups = std::move(longer);
  }
  for (const auto& group : groups) {
    std::int64_t filled = 0;
    bool disjoint = true;
    bool inside = true;
    for (std::size_t a = 0; a < group.size(); ++a) {
      filled += volume(to[group[a]].box);
      inside = inside && contains(from[first].box, to[group[a]].box);
      for (std::size_t b = 0; b < a; ++b) {
        disjoint = disjoint && !intersection(to[group[a]].box, to[group[b]].box);
      }
    }
    if (!inside || !disjoint || filled != volume(from[first].box)) continue;
    auto more = taken;
    for (const std::size_t j : group) more[j] = true;
    if (some_reduction(from, to, more)) return true;
  }
  return false;
}

bool all_reducible(const std::vector<BoxPiece>& from, const std::vector<BoxPiece>& to) {
  for (std::size_t j = 0; j < from.size(); ++j) {
    if (from[j].box != to[j].box) return false;
  }
  return true;
}

/// Whether inside each subgroup with summands one collective leads on; same groups on both sides.
bool some_bottom_collective(const Annotation& from, const Annotation& to, const Shape& shape) {
  const auto source = pieces(from, shape);
  const auto target = pieces(to, shape);
  std::size_t next = 0;
  for (std::size_t i = 0; i < from.subgroups.size(); ++i) {
    const std::size_t end = next + from.subgroups[i].devices.size();
    const std::vector<BoxPiece> before(source.begin() + static_cast<std::ptrdiff_t>(next),
                                       source.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<BoxPiece> after(target.begin() + static_cast<std::ptrdiff_t>(next),
                                      target.begin() + static_cast<std::ptrdiff_t>(end));
    next = end;
    const int had = shards_along(from.subgroups[i].states, kPartial);
    const int has = shards_along(to.subgroups[i].states, kPartial);
    if (had == 1) continue;
    if (has > 1) return false;  // Summands stay: judged elsewhere.
    if (!all_reducible(before, after) &&
        !some_reduction(before, after, std::vector<bool>(before.size(), false))) {
      return false;
    }
  }
  return true;
}

/// Whether a device needs an element of which it held nothing.
bool someone_needs_more(const Annotation& from, const Annotation& to, const Shape& shape) {
  const auto source = pieces(from, shape);
  const auto target = pieces(to, shape);
  for (std::size_t j = 0; j < source.size(); ++j) {
    if (!contains(source[j].box, target[j].box)) return true;
  }
  return false;
}

bool bottom_partial(const Annotation& annotation) {
  return std::any_of(annotation.subgroups.begin(), annotation.subgroups.end(),
                     [](const Subgroup& s) { return shards_along(s.states, kPartial) > 1; });
}

bool top_partial(const Annotation& annotation) {
  return annotation.hetero_size() > 1 && annotation.hetero_axis == kPartial;
}

/// Whether a rule of the paper's section 4 leaves the pair out.
::testing::AssertionResult follows(const Refusal& refusal, const Annotation& from,
                                   const Annotation& to, const Shape& shape) {
  const auto says = [&](bool holds) {
    return holds ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << refusal.reason;
  };
  if (!has_partial(from) && !has_partial(to)) return says(false);  // BSR does all these.
  switch (refusal.rule) {
    case Rule::invalid:
      return says(false);
    case Rule::to_partial:
      return says(has_partial(to));
    case Rule::changed_groups:
      return says(!same_device_groups(from, to));
    case Rule::no_collective:
      if (!same_device_groups(from, to) || !bottom_partial(from)) return says(false);
      if (bottom_partial(to) || !same_top_tier(from, to)) return says(true);
      return says(!some_bottom_collective(from, to, shape));
    case Rule::no_split_collective:
      if (same_top_tier(from, to) || !same_device_groups(from, to)) return says(false);
      if (bottom_partial(from) || from.subgroups != to.subgroups) return says(true);
      return says(top_partial(from) && someone_needs_more(from, to, shape));
  }
  return says(false);
}

TEST(CommunicateLaw, EveryDeviceEndsWithWhatTheDestinationSays) {
  Rng rng(1);
  std::map<std::string, int> kinds;
  std::map<Rule, int> refusals;
  for (int n = 0; n < 60000; ++n) {
    const Shape shape = random_shape(rng);
    const bool partial = rng.bernoulli(0.5);
    const Annotation from = random_annotation(rng, shape, kDevices, partial);
    const Annotation to = random_change(rng, from, shape, kDevices, partial && rng.bernoulli(0.4));
    BatchedOptions options;
    if (rng.bernoulli(0.3)) options.link_rank = [](int a, int b) { return (a * 3 + b * 5) % 3; };
    const auto result = communicate(from, to, shape, options);
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      ++refusals[refusal->rule];
      ASSERT_TRUE(follows(*refusal, from, to, shape)) << describe(shape, from, to);
      continue;
    }
    const auto& steps = std::get<Steps>(result);
    const Values values = random_values(rng, shape);
    Buffers buffers = materialize(from, shape, values, rng);
    ASSERT_EQ(compare(from, shape, values, buffers).value_or(""), "") << describe(shape, from, to);
    ASSERT_EQ(execute(steps, shape, buffers).value_or(""), "") << describe(shape, from, to);
    ASSERT_EQ(compare(to, shape, values, buffers).value_or(""), "") << describe(shape, from, to);
    for (const auto& step : steps) ++kinds[std::string(to_string(step.kind))];
  }
  for (const char* kind :
       {"identity", "SR", "AR", "RS", "AG", "SplitAR", "SplitRS", "SplitAG", "BSR"}) {
    EXPECT_GE(kinds[kind], 200) << kind;
    RecordProperty(kind, kinds[kind]);
  }
  for (const Rule rule :
       {Rule::to_partial, Rule::no_collective, Rule::changed_groups, Rule::no_split_collective}) {
    EXPECT_GE(refusals[rule], 100) << static_cast<int>(rule);
  }
}

TEST(CommunicateLaw, WithoutPartialEverythingResolves) {
  Rng rng(2);
  for (int n = 0; n < 5000; ++n) {
    const Shape shape = random_shape(rng);
    const Annotation from = random_annotation(rng, shape, kDevices, false);
    const Annotation to = random_change(rng, from, shape, kDevices, false);
    ASSERT_TRUE(std::holds_alternative<Steps>(communicate(from, to, shape)))
        << describe(shape, from, to);
  }
}

TEST(CommunicateLaw, StepsToTheSameAnnotationMoveNothing) {
  Rng rng(3);
  for (int n = 0; n < 2000; ++n) {
    const Shape shape = random_shape(rng);
    const Annotation annotation = random_annotation(rng, shape, kDevices, true);
    const auto steps = std::get<Steps>(communicate(annotation, annotation, shape));
    for (const auto& step : steps) {
      ASSERT_EQ(step.kind, CommunicationKind::identity) << to_string(annotation);
    }
  }
}

}  // namespace
}  // namespace orrery::models::testing::communicate_law_test
