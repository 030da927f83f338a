#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/base/ids.h"
#include "models/sharding/resolve.h"
#include "tests/models/sharding/random_layouts.h"

namespace orrery::models::testing::resolve_law_test {
namespace {

constexpr int kOwners = 6;

ResolveOptions random_options() {
  ResolveOptions options;
  options.gather_and_broadcast = random_int(0, 1) == 1;
  return options;
}

RC_GTEST_PROP(ResolveLaw, FullValuesArriveAndNothingMovesInVain, ()) {
  const std::int64_t length = random_int(0, 24);
  const Layout from = random_full(length, kOwners);
  const Layout to = random_full(length, kOwners);
  const auto result = resolve(from, to, random_options());
  RC_ASSERT(std::holds_alternative<std::vector<GroupStep>>(result));
  const auto& steps = std::get<std::vector<GroupStep>>(result);
  RC_ASSERT(run(from, to, steps) == "");
  RC_ASSERT(delivered(steps) == needed(from, to));
}

RC_GTEST_PROP(ResolveLaw, SummandsAddUpUnlessNoDestinationHoldsOne, ()) {
  const std::int64_t length = random_int(1, 24);
  const int summands = random_int(1, 4);
  const Layout from = random_partial(length, kOwners, summands);
  const Layout to = random_full(length, kOwners);
  bool covered = true;
  for (std::int64_t x = 0; x < length; ++x) {
    const auto have = owners_at(from, x);
    const auto need = owners_at(to, x);
    covered &= std::any_of(need.begin(), need.end(), [&](int o) { return have.count(o) > 0; });
  }
  const auto result = resolve(from, to, random_options());
  RC_ASSERT(std::holds_alternative<std::vector<GroupStep>>(result) == (covered || summands == 1));
  if (const auto* steps = std::get_if<std::vector<GroupStep>>(&result)) {
    RC_ASSERT(run(from, to, *steps) == "");
  }
}

RC_GTEST_PROP(ResolveLaw, EverySegmentIsReducedOnceAmongOneOwnerPerSummand, ()) {
  const std::int64_t length = random_int(1, 24);
  const int summands = random_int(2, 4);
  const Layout from = random_partial(length, kOwners, summands);
  Layout to = from;
  for (Piece& piece : to.pieces) piece.partial = kFullValue;
  std::vector<int> reduced(length, 0);
  const auto steps = std::get<std::vector<GroupStep>>(resolve(from, to));
  for (const GroupStep& step : steps) {
    if (step.kind != StepKind::all_reduce && step.kind != StepKind::reduce_scatter) continue;
    RC_ASSERT(step.group.size() == as_size(summands));
    for (const Slice& slice : step.slices) {
      for (auto x = slice.begin; x < slice.end; ++x) ++reduced[x];
    }
  }
  RC_ASSERT(std::all_of(reduced.begin(), reduced.end(), [](int times) { return times == 1; }));
}

}  // namespace
}  // namespace orrery::models::testing::resolve_law_test
