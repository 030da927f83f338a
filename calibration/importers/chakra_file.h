/// Chakra execution traces as files: one rank's nodes, in and out. Which fields and types other
/// readers insist on is known here, what nodes mean is not (chakra.h).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/base/time.h"

namespace orrery::calibration {

/// Values as in the schema.
enum class ChakraType : std::uint32_t {
  invalid = 0,
  metadata = 1,
  memory_load = 2,
  memory_store = 3,
  compute = 4,
  send = 5,
  receive = 6,
  collective = 7,
};
inline constexpr std::uint32_t kNamedChakraTypes = 11;  ///< Newer ones are storage and batches.

/// What a collective is (attribute comm_type); values as in the schema.
enum class ChakraCollective : std::int64_t {
  all_reduce = 0,
  reduce = 1,
  all_gather = 2,
  gather = 3,
  scatter = 4,
  broadcast = 5,
  all_to_all = 6,
  reduce_scatter = 7,
  reduce_scatter_block = 8,
  barrier = 9,
};

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  std::uint32_t type = 0;              ///< ChakraType, or what a newer schema names.
  std::vector<std::uint64_t> control;  ///< Nodes that must end first.
  std::vector<std::uint64_t> data;     ///< The same.
  std::uint64_t start_us = 0;
  std::uint64_t duration_us = 0;
  std::string input_values;
  std::map<std::string, std::int64_t> numbers;  ///< Attributes that are whole numbers or flags.
  std::map<std::string, std::string> texts;

  std::optional<std::int64_t> number(const std::string& name) const;
  /// Our own attribute duration_ns, else whole microseconds.
  Nanoseconds duration() const;
};

struct ChakraTrace {
  std::string version;
  std::map<std::string, std::int64_t> numbers;  ///< Attributes of the whole trace.
  std::vector<ChakraNode> nodes;                ///< In the order of the file.
};

/// The trace, or what is wrong with the bytes in words.
std::variant<ChakraTrace, std::string> parse_chakra(std::string_view bytes);

/// Schema 1.0.0. Attributes get the types that the schema's users read: 32 bits for comm_src,
/// comm_dst, comm_tag and comm_priority, a flag for is_cpu_op, 64 bits for all other numbers.
std::string write_chakra(const ChakraTrace& trace);

}  // namespace orrery::calibration
