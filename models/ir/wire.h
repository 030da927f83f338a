/// Program and RunLog as bytes: length-delimited protobuf (wire.proto, program.proto,
/// run_log.proto) in chunks of columns, with a checksum. Equal values give equal bytes. 10^6 ops
/// take about 20 MB.
#pragma once
#include <string>
#include <string_view>
#include <variant>

#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::ir {

/// Newest schemas that parse_program() and parse_run_log() read, and that serialize() writes.
inline constexpr int kProgramSchema = 1;
inline constexpr int kRunLogSchema = 1;

std::string serialize(const Program& program);
std::string serialize(const RunLog& log);

/// The value, or the problem in words, whatever the bytes: "truncated after 4096 bytes",
/// "corrupted: checksum ...", "is a run log, not a program", "written by a newer version (schema 3,
/// this is 1)". Says nothing about what the program means: find_defect() does.
std::variant<Program, std::string> parse_program(std::string_view bytes);
std::variant<RunLog, std::string> parse_run_log(std::string_view bytes);

/// Content hash of the serialized program: RunLog::program_hash.
std::string program_hash(const Program& program);

}  // namespace orrery::ir
