/// Whatever a program or a log holds comes back; whatever happens to its bytes is reported.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/ir/wire.h"
#include "tests/models/ir/programs.h"

namespace orrery::ir::wire_law_test {
namespace {

RC_GTEST_PROP(WireLaw, AnyProgramComesBack, (std::uint64_t seed)) {
  Rng rng(seed);
  const Program program = random_program(rng);
  const std::string bytes = serialize(program);
  const auto back = parse_program(bytes);
  RC_ASSERT(std::holds_alternative<Program>(back));
  RC_ASSERT(std::string(difference(std::get<Program>(back), program)) == "");
  RC_ASSERT(serialize(std::get<Program>(back)) == bytes);
  (void)find_defect(program);  // Must answer, whatever the program.
}

RC_GTEST_PROP(WireLaw, AnyLogComesBack, (std::uint64_t seed)) {
  Rng rng(seed);
  const RunLog log = random_log(rng);
  const std::string bytes = serialize(log);
  const auto back = parse_run_log(bytes);
  RC_ASSERT(std::holds_alternative<RunLog>(back));
  RC_ASSERT(std::string(difference(std::get<RunLog>(back), log)) == "");
  RC_ASSERT(serialize(std::get<RunLog>(back)) == bytes);
}

/// A few bytes overwritten, a piece cut out or doubled, something appended.
std::string damage(std::string bytes, Rng& rng) {
  const auto place = [&] { return rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1); };
  const std::size_t at = place();
  const std::size_t length = rng.integer(1, 20);
  switch (rng.integer(0, 3)) {
    case 0:
      for (auto n = rng.integer(1, 8); n > 0; --n) {
        bytes[place()] = static_cast<char>(rng() & 0xff);
      }
      break;
    case 1:
      bytes.erase(at, length);
      break;
    case 2:
      bytes.insert(at, bytes.substr(at, length));
      break;
    default:
      for (std::size_t n = 0; n < length; ++n) bytes += static_cast<char>(rng() & 0xff);
  }
  return bytes;
}

RC_GTEST_PROP(WireLaw, DamageIsReported, (std::uint64_t seed)) {
  Rng rng(seed);
  const std::string program = serialize(random_program(rng));
  const std::string log = serialize(random_log(rng));
  for (int i = 0; i < 20; ++i) {
    const std::string damaged = damage(program, rng);
    const std::string damaged_log = damage(log, rng);
    RC_ASSERT(damaged == program || std::holds_alternative<std::string>(parse_program(damaged)));
    RC_ASSERT(damaged_log == log ||
              std::holds_alternative<std::string>(parse_run_log(damaged_log)));
  }
}

}  // namespace
}  // namespace orrery::ir::wire_law_test
