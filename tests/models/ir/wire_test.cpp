/// Do programs and logs survive the trip through bytes, and is every damage named?
#include "models/ir/wire.h"

#include <gtest/gtest.h>

#include <boost/crc.hpp>
#include <chrono>
#include <cstring>

#include "tests/models/ir/programs.h"

namespace orrery::ir::wire_test {
namespace {

std::string problem_of(std::string_view bytes) {
  const auto result = parse_program(bytes);
  const auto* problem = std::get_if<std::string>(&result);
  return problem != nullptr ? *problem : "no problem";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// Puts the right checksum at the end of a file that was changed: "CRC-32 of all bytes before the
/// last message", which takes eleven bytes (length, mark, checksum).
void repair_checksum(std::string& bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size() - 11);
  const auto value = static_cast<std::uint32_t>(crc.checksum());
  std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
}

TEST(Wire, ProgramsComeBackAsTheyWere) {
  for (const Program& program : {pipelined_program(2, 3, 4), op_group_program(), Program{}}) {
    const auto back = parse_program(serialize(program));
    ASSERT_TRUE(std::holds_alternative<Program>(back)) << std::get<std::string>(back);
    EXPECT_STREQ(difference(std::get<Program>(back), program), "");
  }
}

TEST(Wire, LogsComeBackAsTheyWere) {
  RunLog log = plain_log(pipelined_program(2, 3, 4));
  log.links = {{"leaf 0 -> spine 1", BytesPerSecond{5e9}, Bytes{123}}};
  log.clocks = {{{1}, {-50}, {7}}};
  const auto back = parse_run_log(serialize(log));
  ASSERT_TRUE(std::holds_alternative<RunLog>(back)) << std::get<std::string>(back);
  EXPECT_STREQ(difference(std::get<RunLog>(back), log), "");
}

TEST(Wire, HashChangesWithTheProgramAlone) {
  Program program = pipelined_program(2, 3, 4);
  const std::string hash = program_hash(program);
  EXPECT_EQ(program_hash(pipelined_program(2, 3, 4)), hash);
  program.ops.back().bytes = Bytes{257};
  EXPECT_NE(program_hash(program), hash);
}

TEST(Wire, TablesLongerThanAChunkStayWhole) {
  Program program = pipelined_program(1, 2, 40000);
  program.region_sets.emplace_back(200000, Region{TensorKind::gradient, {0}, {1}, 0, 0, 8});
  program.region_sets.emplace_back();
  ASSERT_GT(program.ops.size(), 3U << 16);
  const auto back = parse_program(serialize(program));
  ASSERT_TRUE(std::holds_alternative<Program>(back)) << std::get<std::string>(back);
  EXPECT_STREQ(difference(std::get<Program>(back), program), "");
}

TEST(Wire, ALogIsNotTakenForAProgram) {
  EXPECT_EQ(problem_of(serialize(RunLog{})), "is a run log, not a program");
  const auto result = parse_run_log(serialize(Program{}));
  EXPECT_EQ(std::get<std::string>(result), "is a program, not a run log");
}

TEST(Wire, OtherFilesAreRefused) {
  EXPECT_EQ(problem_of(""), "is empty");
  EXPECT_EQ(problem_of("cluster:\n  nodes: 3\n"), "is not a program written by Orrery");
  EXPECT_EQ(problem_of(std::string(1000, '\0')), "is not a program written by Orrery");
  EXPECT_EQ(problem_of(std::string(1000, '\xff')), "is not a program written by Orrery");
}

TEST(Wire, EveryTruncationIsNamed) {
  const std::string bytes = serialize(pipelined_program(2, 2, 2));
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const std::string problem = problem_of(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(contains(problem, "truncated after")) << size << ": " << problem;
    ASSERT_TRUE(contains(problem, std::to_string(size).c_str())) << size << ": " << problem;
  }
}

TEST(Wire, EveryFlippedBitIsNoticed) {
  const std::string bytes = serialize(op_group_program());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(problem_of(damaged), "no problem") << "bit " << bit;
  }
}

TEST(Wire, CorruptionGivesBothChecksums) {
  std::string bytes = serialize(pipelined_program(2, 2, 2));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  EXPECT_TRUE(contains(problem_of(bytes), "corrupted: its checksum is")) << problem_of(bytes);
}

TEST(Wire, ANewerSchemaIsRefused) {
  std::string bytes = serialize(Program{});
  // Length, magic (2 + 6 bytes), kind (2 + 7), tag of the schema, the schema.
  const std::size_t at = 1 + 8 + 9 + 1;
  ASSERT_EQ(bytes[at], kProgramSchema);
  bytes[at] = 3;
  repair_checksum(bytes);
  EXPECT_EQ(problem_of(bytes), "written by a newer version (schema 3, this is 1)");
}

/// What a checksum cannot see: contents that were never right.
TEST(Wire, ValuesOutOfRangeAreRefused) {
  Program program = op_group_program();
  program.ops[0].kind = static_cast<OpKind>(99);
  EXPECT_TRUE(contains(problem_of(serialize(program)), "value 99 is out of range"))
      << problem_of(serialize(program));
  program = op_group_program();
  program.header.dtype = static_cast<Dtype>(77);
  EXPECT_TRUE(contains(problem_of(serialize(program)), "a header value is out of range"));
}

TEST(Wire, DamageUnderARightChecksumNeverCrashes) {
  const std::string bytes = serialize(pipelined_program(2, 2, 2));
  std::size_t refused = 0;
  for (std::size_t at = 20; at + 11 < bytes.size(); ++at) {
    for (const int value : {0, 1, 127, 128, 255}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(value);
      repair_checksum(damaged);
      const auto result = parse_program(damaged);
      if (const auto* program = std::get_if<Program>(&result)) {
        (void)find_defect(*program);
      } else {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, bytes.size() / 2) << "of " << bytes.size() << " bytes";
}

TEST(Wire, AMillionOpsAreSmall) {
  const Program program = pipelined_program(256, 8, 92);
  ASSERT_GT(program.ops.size(), 1000000U);
  const auto start = std::chrono::steady_clock::now();
  const std::string bytes = serialize(program);
  const auto written = std::chrono::steady_clock::now();
  const auto back = parse_program(bytes);
  const auto read = std::chrono::steady_clock::now();
  EXPECT_EQ(find_defect(program), "");
  const auto checked = std::chrono::steady_clock::now();
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  RecordProperty("bytes", std::to_string(bytes.size()));
  RecordProperty("seconds_to_write", std::to_string(seconds(start, written)));
  RecordProperty("seconds_to_read", std::to_string(seconds(written, read)));
  RecordProperty("seconds_to_check", std::to_string(seconds(read, checked)));
  ASSERT_TRUE(std::holds_alternative<Program>(back));
  EXPECT_STREQ(difference(std::get<Program>(back), program), "");
  EXPECT_LT(bytes.size(), 40U << 20);
}

}  // namespace
}  // namespace orrery::ir::wire_test
