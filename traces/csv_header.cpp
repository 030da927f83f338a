#include "traces/csv_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "models/config/units.h"
#include "traces/names.h"

namespace orrery::traces {
namespace {

constexpr const char* kSchema = "orrery/trace/1";
constexpr std::int64_t kMostGpus = 1024;
constexpr std::size_t kMostDevices = 1 << 24;

}  // namespace

void HeaderReader::read(std::string_view line, std::int64_t number) {
  const std::size_t begin = std::min(line.find_first_not_of("# \t"), line.size());
  const std::size_t colon = line.find(':', begin);
  if (begin == line.size()) return;
  if (colon == std::string_view::npos) {
    problems_.add(number, 1, "a header line that is not `# key: value`");
    return;
  }
  const std::string key(trimmed(line.substr(begin, colon - begin)));
  const std::string_view rest = line.substr(colon + 1);
  const std::string_view value = trimmed(rest);
  const int column =
      static_cast<int>(value.empty() ? colon + 1
                                     : static_cast<std::size_t>(value.data() - line.data())) +
      1;
  if (!schema_ && key != "schema") {
    problems_.add(number, 1, "the first line must be `# schema: orrery/trace/1`",
                  "orrery trace import reads the formats of others");
    schema_ = true;
  }
  read_key(key, std::string(value), number, column);
}

void HeaderReader::read_key(const std::string& key, const std::string& value, std::int64_t line,
                            int column) {
  config::TextError error;
  if (key == "schema") {
    schema_ = true;
    if (value != kSchema) {
      problems_.add(line, column, fmt::format("unknown schema '{}'", value),
                    fmt::format("this version reads {}", kSchema));
    }
  } else if (key == "source") {
    trace_.source = value;
  } else if (key == "seed") {
    const auto [end, failure] =
        std::from_chars(value.data(), value.data() + value.size(), trace_.seed);
    if (failure != std::errc() || end != value.data() + value.size()) {
      problems_.add(line, column, fmt::format("'{}' is no seed", value), "a whole number");
    }
  } else if (key == "horizon") {
    horizon_ = true;
    if (const auto time = parse_time(value, error)) {
      trace_.horizon = {*time};
    } else {
      problems_.add(line, column, error.what, error.hint);
    }
  } else if (key == "nodes") {
    read_nodes(value, line, column);
  } else {
    trace_.header.emplace_back(key, value);
  }
}

void HeaderReader::read_nodes(std::string_view value, std::int64_t line, int column) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = std::min(value.find_first_of(" \t", at), value.size());
    if (end > at) words.push_back(value.substr(at, end - at));
    at = end + 1;
  }
  TraceNode node;
  config::TextError error;
  if (words.size() > 1 && words.back().size() > 1 && words.back()[0] == 'x' &&
      words.back().find_first_not_of("0123456789", 1) == std::string_view::npos) {
    const auto gpus = config::parse_integer(words.back().substr(1), 1, kMostGpus, error);
    if (!gpus) return problems_.add(line, column, error.what, error.hint);
    node.gpus = static_cast<int>(*gpus);
    words.pop_back();
  }
  if (words.empty() || words.size() > 2) {
    return problems_.add(line, column, "nodes are `NAMES TYPE xGPUS`",
                         "for example node{0..15} A100-80GB x8");
  }
  if (words.size() == 2) node.gpu_type = words[1];
  const auto names = split_names(words[0], error);
  if (!names) return problems_.add(line, column, error.what, error.hint);
  devices_ += names->size() * static_cast<std::size_t>(node.gpus);
  if (devices_ > kMostDevices) {
    return problems_.add(line, column, fmt::format("more than {} devices", kMostDevices));
  }
  for (const std::string& name : *names) {
    if (!known_.insert(name).second) {
      problems_.add(line, column, fmt::format("node '{}' twice", name));
      continue;
    }
    node.name = name;
    trace_.nodes.push_back(node);
  }
}

}  // namespace orrery::traces
