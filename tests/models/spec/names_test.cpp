#include "models/ir/names.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "models/base/ids.h"

namespace orrery::ir::names_test {
namespace {

template <class E>
class Names : public ::testing::Test {};

using Enums =
    ::testing::Types<Dtype, BlockKind, Normalization, Activation, Optimizer, ScheduleKind,
                     ActivationTransfer, Redundancy, SequenceParallelism, Recompute, Pass,
                     EventKind, EventScope::Kind, OpKind, Stream, Location, CollectiveKind, Purpose,
                     TensorKind, BufferKind, BufferEffect::Action>;
TYPED_TEST_SUITE(Names, Enums);

TYPED_TEST(Names, CountUpFromZeroAndAreUniqueLowerSnake) {
  const auto table = enum_names(TypeParam{});
  std::set<std::string> seen;
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(index_of(table[i].first), i);
    EXPECT_TRUE(seen.insert(table[i].second).second);
    EXPECT_TRUE(std::regex_match(table[i].second, std::regex("[a-z0-9]+(_[a-z0-9]+)*")));
    EXPECT_STREQ(name_of(table[i].first), table[i].second);
  }
}

TEST(EnumNames, AreThoseOfTheLiterature) {
  EXPECT_STREQ(name_of(ScheduleKind::one_f_one_b), "1f1b");
  EXPECT_STREQ(name_of(ScheduleKind::interleaved_one_f_one_b), "interleaved_1f1b");
  EXPECT_STREQ(name_of(static_cast<Dtype>(99)), "?");
}

}  // namespace
}  // namespace orrery::ir::names_test
