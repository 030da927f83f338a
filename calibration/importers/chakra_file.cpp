#include "calibration/importers/chakra_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "calibration/importers/chakra.pb.h"
#include "models/ir/delimited.h"

namespace orrery::calibration {
namespace {

constexpr const char* kChakraVersion = "1.0.0";
constexpr const char* kDurationNs = "duration_ns";

constexpr const char* kNarrow[] = {"comm_src", "comm_dst", "comm_tag", "comm_priority"};

/// Whole numbers of every width, and flags; a real number only if it is whole.
std::optional<std::int64_t> whole(const chakra::Attribute& attribute) {
  constexpr auto kMost = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  const auto unsigned_value = [](std::uint64_t value) {
    return value > kMost ? std::nullopt
                         : std::optional<std::int64_t>(static_cast<std::int64_t>(value));
  };
  const auto real = [](double value) {
    const bool fits = std::abs(value) < 9e15 && value == std::floor(value);
    return fits ? std::optional<std::int64_t>(static_cast<std::int64_t>(value)) : std::nullopt;
  };
  switch (attribute.value_case()) {
    case chakra::Attribute::kReal:
      return real(attribute.real());
    case chakra::Attribute::kSingle:
      return real(attribute.single());
    case chakra::Attribute::kI32:
      return attribute.i32();
    case chakra::Attribute::kI64:
      return attribute.i64();
    case chakra::Attribute::kU32:
      return attribute.u32();
    case chakra::Attribute::kU64:
      return unsigned_value(attribute.u64());
    case chakra::Attribute::kS32:
      return attribute.s32();
    case chakra::Attribute::kS64:
      return attribute.s64();
    case chakra::Attribute::kF32:
      return attribute.f32();
    case chakra::Attribute::kF64:
      return unsigned_value(attribute.f64());
    case chakra::Attribute::kSf32:
      return attribute.sf32();
    case chakra::Attribute::kSf64:
      return attribute.sf64();
    case chakra::Attribute::kFlag:
      return attribute.flag() ? 1 : 0;
    default:
      return std::nullopt;
  }
}

template <class Attributes>
void take_attributes(const Attributes& attributes, std::map<std::string, std::int64_t>& numbers,
                     std::map<std::string, std::string>* texts) {
  for (const chakra::Attribute& attribute : attributes) {
    if (const auto number = whole(attribute)) numbers[attribute.name()] = *number;
    if (texts != nullptr && attribute.value_case() == chakra::Attribute::kText) {
      (*texts)[attribute.name()] = attribute.text();
    }
  }
}

void put_number(chakra::Attribute& out, const std::string& name, std::int64_t value) {
  out.set_name(name);
  if (name == "is_cpu_op") {
    out.set_flag(value != 0);
  } else if (std::find(std::begin(kNarrow), std::end(kNarrow), name) != std::end(kNarrow)) {
    out.set_i32(static_cast<std::int32_t>(value));
  } else {
    out.set_i64(value);
  }
}

}  // namespace

std::optional<std::int64_t> ChakraNode::number(const std::string& name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

Nanoseconds ChakraNode::duration() const {
  if (const auto exact = number(kDurationNs); exact && *exact >= 0) return {*exact};
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 1000;
  return {static_cast<std::int64_t>(std::min(duration_us, kMost)) * 1000};
}

std::variant<ChakraTrace, std::string> parse_chakra(std::string_view bytes) {
  if (bytes.empty()) return "is empty";
  if (bytes.size() >= 2 && bytes.substr(0, 2) == "\x1f\x8b") {
    return "is compressed: unpack it with gunzip first";
  }
  std::string_view rest = bytes;
  ChakraTrace trace;
  chakra::TraceHead head;
  const auto first = ir::take_message(rest);
  if (!first || !ir::parse_message(*first, head)) return "is no Chakra execution trace";
  trace.version = head.version();
  take_attributes(head.attributes(), trace.numbers, nullptr);
  while (!rest.empty()) {
    const std::size_t at = bytes.size() - rest.size();
    const auto message = ir::take_message(rest);
    if (!message) return fmt::format("is cut off: the node at byte {} does not end", at);
    chakra::TraceNode node;
    if (!ir::parse_message(*message, node)) return fmt::format("has no node at byte {}", at);
    ChakraNode out;
    out.id = node.id();
    out.name = node.name();
    out.type = node.type();
    out.control.assign(node.control().begin(), node.control().end());
    out.data.assign(node.data().begin(), node.data().end());
    out.start_us = node.start_us();
    out.duration_us = node.duration_us();
    out.input_values = node.inputs().values();
    take_attributes(node.attributes(), out.numbers, &out.texts);
    trace.nodes.push_back(std::move(out));
  }
  return trace;
}

std::string write_chakra(const ChakraTrace& trace) {
  std::string bytes;
  chakra::TraceHead head;
  head.set_version(trace.version.empty() ? kChakraVersion : trace.version);
  for (const auto& [name, value] : trace.numbers) put_number(*head.add_attributes(), name, value);
  ir::append_message(bytes, head);
  for (const ChakraNode& node : trace.nodes) {
    chakra::TraceNode out;
    out.set_id(node.id);
    out.set_name(node.name);
    out.set_type(node.type);
    for (const std::uint64_t id : node.control) out.add_control(id);
    for (const std::uint64_t id : node.data) out.add_data(id);
    out.set_start_us(node.start_us);
    out.set_duration_us(node.duration_us);
    if (!node.input_values.empty()) out.mutable_inputs()->set_values(node.input_values);
    for (const auto& [name, value] : node.numbers) put_number(*out.add_attributes(), name, value);
    for (const auto& [name, value] : node.texts) {
      chakra::Attribute& attribute = *out.add_attributes();
      attribute.set_name(name);
      attribute.set_text(value);
    }
    ir::append_message(bytes, out);
  }
  return bytes;
}

}  // namespace orrery::calibration
