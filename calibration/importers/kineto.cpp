#include "calibration/importers/kineto.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "calibration/importers/chakra.h"
#include "calibration/read_text.h"
#include "models/config/json_text.h"

namespace orrery::calibration {
namespace {

namespace fs = std::filesystem;
using Event = nlohmann::json;

/// From a launch to the start of its kernel on an idle GPU, and between kernels of a busy one: what
/// takes longer waited for something.
constexpr std::int64_t kLaunchLatency = 15'000;
constexpr std::int64_t kKernelGap = 3'000;
constexpr double kLatestMicroseconds = 4e15;

std::string text_at(const Event& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// A number, also one within quotes.
std::optional<double> number_at(const Event& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  if (!found->is_string()) return std::nullopt;
  const std::string text = found->get<std::string>();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole_at(const Event& object, const char* key) {
  const auto value = number_at(object, key);
  if (!value || std::abs(*value) > 9e15) return std::nullopt;
  return std::llround(*value);
}

/// Bytes of an element; 0 for a name that is not known.
int size_of_dtype(const std::string& name) {
  static const std::map<std::string, int> kSizes = {
      {"Float", 4}, {"float", 4},    {"Double", 8},   {"double", 8}, {"Half", 2},
      {"half", 2},  {"BFloat16", 2}, {"bfloat16", 2}, {"Byte", 1},   {"byte", 1},
      {"Char", 1},  {"char", 1},     {"Short", 2},    {"short", 2},  {"Int", 4},
      {"int", 4},   {"Long", 8},     {"long", 8},     {"Bool", 1},   {"bool", 1}};
  if (name.starts_with("Float8")) return 1;
  const auto found = kSizes.find(name);
  return found == kSizes.end() ? 0 : found->second;
}

struct NamedCollective {
  const char* part;  ///< Of the name, in lower case without underscores.
  ir::CollectiveKind kind;
};
constexpr NamedCollective kCollectives[] = {
    {"allreduce", ir::CollectiveKind::all_reduce},
    {"reducescatter", ir::CollectiveKind::reduce_scatter},
    {"allgather", ir::CollectiveKind::all_gather},
    {"alltoall", ir::CollectiveKind::all_to_all},
    {"broadcast", ir::CollectiveKind::broadcast},
    {"barrier", ir::CollectiveKind::all_reduce},
};

std::string plain(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

bool is_nccl(const std::string& kernel) {
  return kernel.starts_with("nccl") || kernel.starts_with("rccl");
}

/// A call of the CUDA runtime.
struct Call {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t correlation = -1;
  enum class Kind { launch, wait_event, synchronize } kind = Kind::launch;
};

/// What happened on the GPU.
struct Work {
  RecordedOp op;
  std::int64_t correlation = -1;
  std::int64_t launched = INT64_MIN;  ///< Unknown: before everything.
  bool communication = false;
  bool after_wait = false;  ///< Launched right after cudaStreamWaitEvent.

  std::int64_t start() const { return op.start.nanoseconds; }
  std::int64_t end() const { return (op.start + op.duration).nanoseconds; }
};

class FileReader {
 public:
  FileReader(const std::string& path, RecordedRun& run, config::Diagnostics& diagnostics)
      : path_(path), run_(run), diagnostics_(diagnostics) {}

  /// False if the file cannot be read at all.
  bool read() {
    std::string text;
    if (!read_text(path_, text, diagnostics_)) return false;
    if (text.starts_with("\x1f\x8b")) {
      fail("is compressed", "unpack it with gunzip first");
      return false;
    }
    std::string within;  // of the outermost object
    const auto take = [&](int depth, nlohmann::json::parse_event_t event, Event& parsed) {
      using Parsing = nlohmann::json::parse_event_t;
      if (event == Parsing::key && depth == 1) within = parsed.get<std::string>();
      if (event != Parsing::object_end || depth != 2 || within != "traceEvents") return true;
      take_event(parsed);
      return false;  // not kept: traces are large
    };
    try {
      const Event root = nlohmann::json::parse(text, take);
      if (!root.is_object() || !root.contains("traceEvents")) {
        fail("has no traceEvents", "a trace of torch.profiler's export_chrome_trace");
        return false;
      }
      if (const auto info = root.find("distributedInfo"); info != root.end() && info->is_object()) {
        take_distributed(*info);
      }
    } catch (const nlohmann::json::parse_error& error) {
      diagnostics_.add(config::position_of_byte(path_, text, error.byte > 0 ? error.byte - 1 : 0),
                       "is no JSON");
      return false;
    } catch (const nlohmann::json::exception&) {
      fail("has a number that is out of range");
      return false;
    }
    return true;
  }

  std::optional<std::int64_t> rank() const { return rank_; }
  std::int64_t steps() const { return steps_; }
  const std::map<std::string, std::int64_t>& left_out() const { return left_out_; }
  std::int64_t guessed() const { return guessed_; }

  /// What was read as ops of a rank. Groups are told to the run.
  RecordedRank finish() {
    match_launches();
    read_collectives();
    std::vector<Call> host = host_calls();
    wait_for_each_other();
    RecordedRank rank;
    rank.file = path_;
    for (Work& work : work_) rank.ops.push_back(std::move(work.op));
    add_host(host, rank);
    if (work_.empty()) fail("has no event of a GPU", "profile with ProfilerActivity.CUDA");
    return rank;
  }

 private:
  void fail(std::string what, std::string hint = "") {
    diagnostics_.add({path_, 0, 0}, std::move(what), std::move(hint));
  }
  /// The first of a kind, with how many there are in all.
  void fail_once(int& count, const std::string& what, const std::string& hint) {
    if (count++ == 0) fail(what, hint);
  }

  void take_event(const Event& event) {
    ++events_;
    const std::string cat = text_at(event, "cat");
    if (text_at(event, "ph") != "X") return;
    const auto at = number_at(event, "ts");
    const double length = number_at(event, "dur").value_or(0);
    const std::string name = text_at(event, "name");
    if (!at || !(std::abs(*at) < kLatestMicroseconds) ||
        !(length >= 0 && length < kLatestMicroseconds)) {
      return fail_once(
          bad_times_,
          fmt::format("traceEvents[{}] ({}) has no time, or one out of range", events_ - 1, name),
          "");
    }
    const std::int64_t start = std::llround(*at * 1e3);
    const std::int64_t duration = std::llround(length * 1e3);
    static const Event kNothing = Event::object();
    const auto found = event.find("args");
    const Event& args = found != event.end() && found->is_object() ? *found : kNothing;
    if (cat == "kernel" || cat == "gpu_memcpy" || cat == "gpu_memset") {
      Work work;
      work.op.name = fmt::format("traceEvents[{}] ({})", events_ - 1, name);
      work.op.start = {start};
      work.op.duration = {duration};
      const auto stream = whole_at(args, "stream");
      work.op.stream =
          std::max<std::int64_t>(0, stream ? *stream : whole_at(event, "tid").value_or(0));
      work.correlation = whole_at(args, "correlation").value_or(-1);
      work.communication = cat == "kernel" && is_nccl(name);
      if (work.communication) collectives_.emplace_back(work_.size(), args);
      work_.push_back(std::move(work));
      return;
    }
    if (cat == "cuda_runtime" || cat == "cuda_driver" || cat == "hip_runtime" || cat == "runtime") {
      Call call{start, start + duration, whole_at(args, "correlation").value_or(-1), {}};
      if (name.find("Synchronize") != std::string::npos) {
        call.kind = Call::Kind::synchronize;
      } else if (name.find("StreamWaitEvent") != std::string::npos) {
        call.kind = Call::Kind::wait_event;
      }
      calls_.push_back(call);
      return;
    }
    if (name.starts_with("ProfilerStep#") && cat == "user_annotation") {
      ++steps_;
      return;
    }
    ++left_out_[cat.empty() ? "without a category" : cat];
  }

  void take_distributed(const Event& info) {
    rank_ = whole_at(info, "rank");
    const auto groups = info.find("pg_config");
    if (groups == info.end() || !groups->is_array()) return;
    for (const Event& group : *groups) {
      if (!group.is_object()) continue;
      const auto ranks = group.find("ranks");
      if (ranks == group.end()) continue;
      if (auto list = rank_list(*ranks); !list.empty()) {
        configured_[text_at(group, "pg_name")] = std::move(list);
      }
    }
  }

  /// [0, 1, ...] as an array or a text; empty if it is cut short ("...") or something else.
  static std::vector<std::int64_t> rank_list(const Event& value) {
    Event list = value;
    if (value.is_string()) {
      if (config::parse_json(value.get<std::string>(), list)) return {};
    }
    std::vector<std::int64_t> ranks;
    if (!list.is_array()) return {};
    for (const Event& rank : list) {
      if (!rank.is_number_integer()) return {};
      ranks.push_back(rank.get<std::int64_t>());
    }
    return ranks;
  }

  void match_launches() {
    std::sort(calls_.begin(), calls_.end(),
              [](const Call& a, const Call& b) { return a.start < b.start; });
    std::unordered_map<std::int64_t, std::size_t> by_correlation;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (work_[i].correlation >= 0) by_correlation.emplace(work_[i].correlation, i);
    }
    bool waits = false;
    for (Call& call : calls_) {
      if (call.kind == Call::Kind::wait_event) waits = true;
      const auto found =
          call.correlation < 0 ? by_correlation.end() : by_correlation.find(call.correlation);
      if (found == by_correlation.end()) {
        call.correlation = -1;
        continue;
      }
      Work& work = work_[found->second];
      call.correlation = static_cast<std::int64_t>(found->second);  // from here on its work
      work.launched = call.start;
      work.after_wait = waits;
      waits = false;
    }
    const auto unlaunched = std::count_if(
        work_.begin(), work_.end(), [](const Work& work) { return work.launched == INT64_MIN; });
    if (unlaunched > 0) left_out_["launches of GPU work"] = unlaunched;
  }

  void read_collectives() {
    for (const auto& [i, args] : collectives_) read_collective(work_[i].op, args);
  }

  void read_collective(RecordedOp& op, const Event& args) {
    const std::string name = plain(text_at(args, "Collective name"));
    if (name.empty()) {
      return fail_once(unnamed_, op.name + ": NCCL's kernel does not say its collective",
                       "PyTorch 2.2 or later writes 'Collective name' and its size");
    }
    const std::string group = text_at(args, "Process Group Name");
    std::vector<std::int64_t> ranks;
    if (const auto found = args.find("Process Group Ranks"); found != args.end()) {
      ranks = rank_list(*found);
    }
    if (const auto found = configured_.find(group); ranks.empty() && found != configured_.end()) {
      ranks = found->second;
    }
    // A name may stand for different groups on different ranks.
    op.group = ranks.empty() ? group : fmt::format("{} [{}]", group, fmt::join(ranks, ", "));
    if (!ranks.empty()) run_.groups.try_emplace(op.group, ranks);
    const auto elements = whole_at(args, "In msg nelems");
    const std::string dtype = text_at(args, "dtype");
    const int size = size_of_dtype(dtype);
    const bool sized = elements && *elements >= 0 && size > 0;
    op.bytes = Bytes{sized ? static_cast<double>(*elements) * size : 0.0};
    if (name == "send" || name == "recv") {
      op.kind = name == "send" ? ir::OpKind::send : ir::OpKind::recv;
      const auto peer = whole_at(args, name == "send" ? "Dst Rank" : "Src Rank");
      if (!peer || *peer < 0) {
        return fail_once(peerless_, op.name + ": a send or receive does not say its peer",
                         "'Dst Rank' and 'Src Rank' of newer versions of PyTorch");
      }
      // Ranks are those of the group.
      op.peer = as_index(*peer) < ranks.size() ? ranks[as_index(*peer)] : *peer;
    } else {
      const auto found =
          std::find_if(std::begin(kCollectives), std::end(kCollectives),
                       [&](const auto& known) { return name.find(known.part) != name.npos; });
      if (found == std::end(kCollectives)) {
        return fail(
            fmt::format("{}: '{}' cannot be replayed", op.name, text_at(args, "Collective name")),
            name == "coalesced" ? "send and receive one by one (no batch_isend_irecv)" : "");
      }
      op.kind = ir::OpKind::collective;
      op.collective = found->kind;
      if (std::string_view(found->part) == "barrier") {
        op.bytes = Bytes{4};
        return;
      }
    }
    if (!sized) {
      fail_once(unsized_,
                fmt::format("{}: its size is missing ('In msg nelems' and 'dtype', here '{}')",
                            op.name, dtype),
                "");
    }
  }
  static std::size_t as_index(std::int64_t value) { return static_cast<std::size_t>(value); }

  /// Adds what ops wait for beyond their streams and launches.
  void wait_for_each_other() {
    std::vector<std::uint32_t> by_launch(work_.size());
    for (std::uint32_t i = 0; i < by_launch.size(); ++i) by_launch[i] = i;
    std::vector<std::uint32_t> by_end = by_launch;
    std::stable_sort(by_launch.begin(), by_launch.end(), [&](auto a, auto b) {
      return std::pair(work_[a].launched, work_[a].start()) <
             std::pair(work_[b].launched, work_[b].start());
    });
    std::stable_sort(by_end.begin(), by_end.end(),
                     [&](auto a, auto b) { return work_[a].end() < work_[b].end(); });
    const std::vector<std::int64_t> free = stream_ends();
    std::optional<std::uint32_t> kernel;
    std::vector<std::uint32_t> communications;
    for (const std::uint32_t i : by_launch) {
      Work& work = work_[i];
      if (work.communication) {
        if (kernel && work_[*kernel].end() <= work.start()) work.op.after.push_back(*kernel);
      } else if (work.after_wait) {
        const auto ended =
            std::find_if(communications.rbegin(), communications.rend(),
                         [&](std::uint32_t other) { return work_[other].end() <= work.start(); });
        if (ended != communications.rend()) work.op.after.push_back(*ended);
      }
      if (work.communication) {
        communications.push_back(i);
      } else {
        kernel = i;
      }
      infer(i, free[i], by_end);
    }
  }

  /// By op: when its stream was free for it.
  std::vector<std::int64_t> stream_ends() const {
    std::vector<std::uint32_t> order(work_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return work_[a].start() < work_[b].start(); });
    std::map<std::int64_t, std::int64_t> ends;
    std::vector<std::int64_t> free(work_.size(), INT64_MIN);
    for (const std::uint32_t i : order) {
      const auto [end, fresh] = ends.try_emplace(work_[i].op.stream, INT64_MIN);
      free[i] = end->second;
      end->second = std::max(end->second, work_[i].end());
    }
    return free;
  }

  /// An op that starts later than its stream, its launch and what it is known to wait for explain
  /// waited for what ended last before it in another stream.
  void infer(std::uint32_t i, std::int64_t free, const std::vector<std::uint32_t>& by_end) {
    Work& work = work_[i];
    std::int64_t ready = free;
    for (const std::uint32_t before : work.op.after) ready = std::max(ready, work_[before].end());
    const std::int64_t patience = work.launched > ready ? kLaunchLatency : kKernelGap;
    ready = std::max(ready, work.launched);
    if (ready == INT64_MIN || work.start() - ready <= patience) return;
    auto at =
        std::upper_bound(by_end.begin(), by_end.end(), work.start(),
                         [&](std::int64_t when, auto other) { return when < work_[other].end(); });
    while (at != by_end.begin()) {
      const std::uint32_t other = *--at;
      const Work& before = work_[other];
      if (before.end() <= ready || work.start() - before.end() > kLaunchLatency) return;
      const bool earlier = before.launched < work.launched || before.start() < work.start();
      if (before.op.stream == work.op.stream || !earlier || other == i) continue;
      work.op.after.push_back(other);
      ++guessed_;
      return;
    }
  }

  std::vector<Call> host_calls() const {
    std::vector<Call> host;
    for (const Call& call : calls_) {
      const bool launches = call.correlation >= 0;
      if (launches || call.kind == Call::Kind::synchronize) host.push_back(call);
    }
    return host;
  }

  /// Points at which the host launches, and what it does after a call that waited for the GPU. Ops
  /// so far are those of work_, with equal indices.
  void add_host(const std::vector<Call>& host, RecordedRank& rank) {
    const auto point = [&](std::int64_t at, std::int64_t until) -> std::uint32_t {
      RecordedOp op;
      op.kind = ir::OpKind::host;
      op.name = "the host";
      // Threads may overlap: each point is a moment of the one before it at the earliest.
      at = std::max(at, host_end_);
      op.start = {at};
      op.duration = {std::max<std::int64_t>(0, until - at)};
      host_end_ = at + op.duration.count;
      rank.ops.push_back(std::move(op));
      return static_cast<std::uint32_t>(rank.ops.size() - 1);
    };
    const std::vector<std::uint32_t> by_end = ended_order(rank);
    for (const Call& call : host) {
      const bool launches = call.correlation >= 0;
      std::optional<std::uint32_t> blocked;
      if (launches) {
        const auto own = static_cast<std::uint32_t>(call.correlation);
        const std::uint32_t launch = point(call.start, call.start);
        // A rounded start may lie before the launch.
        if (rank.ops[launch].start <= rank.ops[own].start) rank.ops[own].after.push_back(launch);
        if (end_in(rank, own) <= call.end) blocked = own;
      } else {
        blocked = ended_in(rank, by_end, call);
      }
      if (!blocked) continue;
      const std::uint32_t rest = point(end_in(rank, *blocked), call.end);
      if (rank.ops[rest].start.nanoseconds >= end_in(rank, *blocked)) {
        rank.ops[rest].after.push_back(*blocked);
      }
    }
  }

  static std::int64_t end_in(const RecordedRank& rank, std::uint32_t i) {
    return (rank.ops[i].start + rank.ops[i].duration).nanoseconds;
  }
  std::vector<std::uint32_t> ended_order(const RecordedRank& rank) const {
    std::vector<std::uint32_t> order(work_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return end_in(rank, a) < end_in(rank, b); });
    return order;
  }
  /// The op launched before a call that ended last while it lasted.
  std::optional<std::uint32_t> ended_in(const RecordedRank& rank,
                                        const std::vector<std::uint32_t>& by_end,
                                        const Call& call) const {
    auto at = std::upper_bound(by_end.begin(), by_end.end(), call.end,
                               [&](std::int64_t when, auto i) { return when < end_in(rank, i); });
    while (at != by_end.begin()) {
      const std::uint32_t i = *--at;
      if (end_in(rank, i) < call.start) return std::nullopt;
      if (work_[i].launched < call.start) return i;
    }
    return std::nullopt;
  }

  const std::string path_;
  RecordedRun& run_;
  config::Diagnostics& diagnostics_;
  std::optional<std::int64_t> rank_;
  std::map<std::string, std::vector<std::int64_t>> configured_;
  std::vector<Work> work_;
  std::vector<Call> calls_;
  std::vector<std::pair<std::size_t, Event>> collectives_;  ///< Index of the work, its arguments.
  std::map<std::string, std::int64_t> left_out_;
  std::int64_t events_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t guessed_ = 0;
  std::int64_t host_end_ = INT64_MIN;
  int bad_times_ = 0;
  int unnamed_ = 0;
  int unsized_ = 0;
  int peerless_ = 0;
};

std::vector<std::string> json_files(const std::string& folder, config::Diagnostics& diagnostics) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  }
  if (error) {
    diagnostics.add({folder, 0, 0}, "cannot read: " + error.message());
  } else if (files.empty()) {
    diagnostics.add({folder, 0, 0}, "has no file NAME.json", "traces are unpacked with gunzip");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

RecordedRun read_kineto(const std::string& folder, config::Diagnostics& diagnostics) {
  RecordedRun run;
  run.source = "kineto";
  run.timed = true;
  std::vector<std::string> files = json_files(folder, diagnostics);
  std::vector<FileReader> readers;
  readers.reserve(files.size());
  bool named = true;
  for (const std::string& file : files) {
    FileReader& reader = readers.emplace_back(file, run, diagnostics);
    if (!reader.read()) return run;
    named = named && reader.rank().has_value();
  }
  std::map<std::string, std::int64_t> left_out;
  std::int64_t guessed = 0;
  if (!named) {
    const std::vector<std::string> in_order = rank_files(folder, ".json", diagnostics);
    if (in_order.size() != files.size()) return run;
    std::vector<FileReader> sorted;
    for (const std::string& file : in_order) {
      const auto found = std::find(files.begin(), files.end(), file);
      sorted.push_back(std::move(readers[static_cast<std::size_t>(found - files.begin())]));
    }
    readers.swap(sorted);
  } else {
    std::vector<std::size_t> place(files.size(), SIZE_MAX);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::int64_t rank = *readers[i].rank();
      if (rank < 0 || rank >= static_cast<std::int64_t>(files.size())) {
        diagnostics.add(
            {files[i], 0, 0},
            fmt::format("is of rank {}, and the folder has {} traces", rank, files.size()),
            "one trace for each rank from 0");
        return run;
      }
      std::size_t& at = place[static_cast<std::size_t>(rank)];
      if (at != SIZE_MAX) {
        diagnostics.add({files[i], 0, 0}, fmt::format("is of rank {}, as {} is", rank, files[at]));
        return run;
      }
      at = i;
    }
    std::vector<FileReader> sorted;
    for (const std::size_t i : place) sorted.push_back(std::move(readers[i]));
    readers.swap(sorted);
  }
  std::int64_t steps = 0;
  for (FileReader& reader : readers) {
    run.ranks.push_back(reader.finish());
    for (const auto& [what, count] : reader.left_out()) left_out[what] += count;
    guessed += reader.guessed();
    steps = std::max(steps, reader.steps());
  }
  run.steps = std::max<std::int64_t>(1, steps);
  std::vector<std::string> rest;
  for (const auto& [what, count] : left_out) rest.push_back(fmt::format("{} {}", count, what));
  if (!rest.empty()) {
    run.notes.push_back(fmt::format("left out: {} (host time is what lies between launches)",
                                    fmt::join(rest, ", ")));
  }
  if (guessed > 0) {
    run.notes.push_back(
        fmt::format("{} waits of one stream for another were inferred from times", guessed));
  }
  return run;
}

}  // namespace orrery::calibration
