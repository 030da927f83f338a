#include "calibration/importers/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <variant>

#include "calibration/importers/chakra_file.h"
#include "calibration/read_text.h"
#include "models/config/json_text.h"

namespace orrery::calibration {
namespace {

namespace fs = std::filesystem;

/// [0, 1, ...] of a JSON array of whole numbers; false if it is none.
bool ranks_of(const nlohmann::json& list, std::vector<std::int64_t>& ranks) {
  if (!list.is_array()) return false;
  for (const nlohmann::json& rank : list) {
    if (!rank.is_number_integer()) return false;
    ranks.push_back(rank.get<std::int64_t>());
  }
  return true;
}

/// {"1": [0, 2], ...}
void read_groups(const std::string& path, RecordedRun& run, config::Diagnostics& diagnostics) {
  std::string text;
  if (!read_text(path, text, diagnostics)) return;
  nlohmann::json json;
  if (const auto fault = config::parse_json(text, json)) {
    diagnostics.add(config::position_of_byte(path, text, fault->byte), fault->what);
    return;
  }
  if (!json.is_object()) {
    return diagnostics.add({path, 1, 1}, "is no JSON object of process groups and their ranks");
  }
  for (const auto& [name, list] : json.items()) {
    if (!ranks_of(list, run.groups[name])) {
      diagnostics.add({path, 0, 0}, fmt::format("process group '{}' is no list of ranks", name));
    }
  }
}

/// The groups of a process_group:init node, a JSON array within brackets and quotes.
void read_group_node(const std::string& values, RecordedRun& run) {
  const std::size_t begin = values.find("[{");
  const std::size_t end = values.rfind("}]");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return;
  nlohmann::json json;
  if (config::parse_json(values.substr(begin, end + 2 - begin), json)) return;
  for (const nlohmann::json& group : json) {
    if (!group.is_object() || !group.contains("pg_name") || !group.contains("ranks")) continue;
    std::vector<std::int64_t> ranks;
    if (!group["pg_name"].is_string() || !ranks_of(group["ranks"], ranks)) continue;
    if (ranks.empty()) {
      for (std::size_t r = 0; r < run.ranks.size(); ++r) {
        ranks.push_back(static_cast<std::int64_t>(r));
      }
    }
    run.groups.try_emplace(group["pg_name"].get<std::string>(), std::move(ranks));
  }
}

class ChakraReader {
 public:
  ChakraReader(RecordedRun& run, config::Diagnostics& diagnostics)
      : run_(run), diagnostics_(diagnostics) {}

  void read(std::size_t number, const ChakraTrace& trace) {
    RecordedRank& rank = run_.ranks[number];
    rank_ = &rank;
    if (const auto device = trace.numbers.find("device"); device != trace.numbers.end()) {
      rank.device = device->second;
    }
    std::unordered_map<std::uint64_t, std::uint32_t> place;
    for (const ChakraNode& node : trace.nodes) {
      if (!place.emplace(node.id, static_cast<std::uint32_t>(place.size())).second) {
        fail(node, "another node has its id");
      }
    }
    for (const ChakraNode& node : trace.nodes) {
      RecordedOp op = read_node(number, node);
      for (const auto* ids : {&node.control, &node.data}) {
        for (const std::uint64_t id : *ids) {
          const auto found = place.find(id);
          if (found == place.end()) {
            fail(node, fmt::format("it depends on node {}, which is not there", id));
          } else {
            op.after.push_back(found->second);
          }
        }
      }
      std::sort(op.after.begin(), op.after.end());
      op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
      const bool counts = static_cast<ChakraType>(node.type) > ChakraType::metadata;
      if (counts && node.start_us > 0) ++timed_;
      if (counts) ++nodes_;
      rank.ops.push_back(std::move(op));
    }
  }

  void finish() {
    // The first node of a rank may start at 0.
    run_.timed = timed_ > 0 && nodes_ - timed_ <= run_.ranks.size();
    for (RecordedRank& rank : run_.ranks) {
      const Instant first = first_start(rank);
      for (RecordedOp& op : rank.ops) op.start = std::max(op.start, first);
    }
    if (timed_ > 0 && !run_.timed) {
      run_.notes.push_back(fmt::format(
          "{} of {} nodes have a start time: none is used, ops run in the order in which they can",
          timed_, nodes_));
    }
    if (reductions_ > 0) {
      run_.notes.push_back(
          fmt::format("{} reductions to one rank are priced as broadcasts", reductions_));
    }
    if (barriers_ > 0) {
      run_.notes.push_back(fmt::format("{} barriers are priced as small all-reduces", barriers_));
    }
    if (untimed_kernels_ > 0) {
      run_.notes.push_back(fmt::format("{} kernels take no time", untimed_kernels_));
    }
  }

 private:
  void fail(const ChakraNode& node, const std::string& what, std::string hint = "") {
    diagnostics_.add({rank_->file, 0, 0}, fmt::format("{}: {}", name_of(node), what),
                     std::move(hint));
  }
  static std::string name_of(const ChakraNode& node) {
    return fmt::format("node {} ({})", node.id, node.name);
  }

  /// Nodes without a time of their own, such as labels, are as early as the first that has one.
  static Instant first_start(const RecordedRank& rank) {
    Instant first{INT64_MAX};
    for (const RecordedOp& op : rank.ops) {
      const bool label = op.kind == ir::OpKind::host && op.duration.count == 0;
      if (!label) first = std::min(first, op.start);
    }
    return first.nanoseconds == INT64_MAX ? Instant{0} : first;
  }

  RecordedOp read_node(std::size_t number, const ChakraNode& node) {
    RecordedOp op;
    op.name = name_of(node);
    op.duration = node.duration();
    constexpr std::uint64_t kMost = INT64_MAX / 4000;
    if (node.start_us > kMost || op.duration.count > INT64_MAX / 4) {
      fail(node, "its time is out of range");
      return op;
    }
    op.start = {static_cast<std::int64_t>(node.start_us) * 1000};
    op.stream = std::max<std::int64_t>(node.number("stream").value_or(-1), -1);
    switch (static_cast<ChakraType>(node.type)) {
      case ChakraType::invalid:
      case ChakraType::metadata:
        op.kind = ir::OpKind::host;
        op.duration = {};
        read_group_node(node.input_values, run_);
        break;
      case ChakraType::compute:
        if (node.number("is_cpu_op").value_or(0) != 0) {
          op.kind = ir::OpKind::host;
        } else {
          op.stream = std::max<std::int64_t>(op.stream, 0);
          if (op.duration.count == 0) ++untimed_kernels_;
        }
        break;
      case ChakraType::collective:
        read_collective(node, op);
        break;
      case ChakraType::send:
      case ChakraType::receive:
        read_message(number, node, op);
        break;
      default:
        fail(node, fmt::format("nodes of type {} ({}) cannot be replayed", node.type,
                               node.type == 2                  ? "memory load"
                               : node.type == 3                ? "memory store"
                               : node.type < kNamedChakraTypes ? "storage, batch or checkpoint"
                                                               : "unknown"));
    }
    return op;
  }

  Bytes size_of(const ChakraNode& node) {
    const auto size = node.number("comm_size");
    if (!size || *size < 0) fail(node, "its comm_size is missing or negative");
    return Bytes{static_cast<double>(size && *size > 0 ? *size : 0)};
  }

  void read_collective(const ChakraNode& node, RecordedOp& op) {
    op.kind = ir::OpKind::collective;
    if (const auto group = node.texts.find("pg_name"); group != node.texts.end()) {
      op.group = group->second;
    } else if (const auto number = node.number("pg_name")) {
      op.group = std::to_string(*number);
    }
    const auto type = node.number("comm_type");
    if (!type) return fail(node, "its comm_type is missing");
    switch (static_cast<ChakraCollective>(*type)) {
      case ChakraCollective::all_reduce:
        op.collective = ir::CollectiveKind::all_reduce;
        break;
      case ChakraCollective::all_gather:
        op.collective = ir::CollectiveKind::all_gather;
        break;
      case ChakraCollective::reduce_scatter:
      case ChakraCollective::reduce_scatter_block:
        op.collective = ir::CollectiveKind::reduce_scatter;
        break;
      case ChakraCollective::all_to_all:
        op.collective = ir::CollectiveKind::all_to_all;
        break;
      case ChakraCollective::reduce:
        ++reductions_;
        [[fallthrough]];
      case ChakraCollective::broadcast:
        op.collective = ir::CollectiveKind::broadcast;
        break;
      case ChakraCollective::barrier:
        ++barriers_;
        op.collective = ir::CollectiveKind::all_reduce;
        op.bytes = Bytes{4};
        return;
      default:
        return fail(node, fmt::format("collectives of type {} cannot be replayed", *type),
                    "gathers and scatters to one rank have no counterpart here");
    }
    op.bytes = size_of(node);
  }

  void read_message(std::size_t number, const ChakraNode& node, RecordedOp& op) {
    const bool sends = static_cast<ChakraType>(node.type) == ChakraType::send;
    op.kind = sends ? ir::OpKind::send : ir::OpKind::recv;
    const auto self = node.number(sends ? "comm_src" : "comm_dst");
    const auto peer = node.number(sends ? "comm_dst" : "comm_src");
    if (!peer) {
      return fail(node, fmt::format("its {} is missing", sends ? "comm_dst" : "comm_src"),
                  "traces that do not name the peers of messages cannot be replayed");
    }
    if (self && *self != static_cast<std::int64_t>(number)) {
      return fail(node, fmt::format("it is of rank {}, its file of rank {}", *self, number));
    }
    op.peer = *peer;
    op.tag = node.number("comm_tag").value_or(0);
    op.bytes = size_of(node);
  }

  RecordedRun& run_;
  config::Diagnostics& diagnostics_;
  RecordedRank* rank_ = nullptr;
  std::size_t nodes_ = 0;
  std::size_t timed_ = 0;
  int reductions_ = 0;
  int barriers_ = 0;
  int untimed_kernels_ = 0;
};

}  // namespace

std::vector<std::string> rank_files(const std::string& folder, const std::string& extension,
                                    config::Diagnostics& diagnostics) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(extension)) continue;
    name.resize(name.size() - extension.size());
    // The last number of the name.
    const std::size_t end = name.find_last_of("0123456789");
    if (end == std::string::npos) continue;
    const std::size_t before = name.find_last_not_of("0123456789", end);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    std::int64_t rank = -1;
    const auto read = std::from_chars(name.data() + begin, name.data() + end + 1, rank);
    if (read.ec == std::errc()) found.emplace_back(rank, entry.path().string());
  }
  if (error) {
    diagnostics.add({folder, 0, 0}, "cannot read: " + error.message());
    return {};
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> files;
  for (const auto& [rank, path] : found) {
    if (rank != static_cast<std::int64_t>(files.size())) {
      const bool twice = rank < static_cast<std::int64_t>(files.size());
      diagnostics.add(
          {path, 0, 0},
          twice ? fmt::format("is a second file of rank {}", rank)
                : fmt::format("is of rank {}, and there is no file of rank {}", rank, files.size()),
          "one file for each rank from 0");
      return {};
    }
    files.push_back(path);
  }
  if (files.empty()) {
    diagnostics.add({folder, 0, 0}, fmt::format("has no file NAME.RANK{}", extension));
  }
  return files;
}

RecordedRun read_chakra(const std::string& folder, config::Diagnostics& diagnostics) {
  RecordedRun run;
  run.source = "chakra";
  for (const std::string& file : rank_files(folder, ".et", diagnostics)) {
    run.ranks.emplace_back().file = file;
  }
  for (const char* name : {"comm_groups.json", "comm_group.json"}) {
    const fs::path path = fs::path(folder) / name;
    std::error_code error;
    if (fs::exists(path, error)) read_groups(path.string(), run, diagnostics);
  }
  std::vector<std::int64_t>& all = run.groups[""];
  ChakraReader reader(run, diagnostics);
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    all.push_back(static_cast<std::int64_t>(r));
    std::string bytes;
    if (!read_text(run.ranks[r].file, bytes, diagnostics)) continue;
    const auto parsed = parse_chakra(bytes);
    if (const auto* problem = std::get_if<std::string>(&parsed)) {
      diagnostics.add({run.ranks[r].file, 0, 0}, *problem);
    } else {
      reader.read(r, std::get<ChakraTrace>(parsed));
    }
  }
  reader.finish();
  return run;
}

}  // namespace orrery::calibration
