#include "calibration/compare/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "models/ir/names.h"

namespace orrery::calibration {
namespace {

constexpr const char* kCheckpointEvent = "checkpoint";
/// Seconds: more is no measurement (and would not fit into nanoseconds).
constexpr double kLongestHold = 1e8;
constexpr const char* kCheckpointForm = "rank=R iteration=I bytes=B seconds=S";

/// Takes "<key>=<number>" and, unless it is the last one, a blank from the front of `text`.
template <class T>
bool take(std::string_view& text, std::string_view key, T& value) {
  if (!text.starts_with(key) || text.size() == key.size() || text[key.size()] != '=') return false;
  text.remove_prefix(key.size() + 1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return false;
  text.remove_prefix(stop - text.data());
  if (text.empty()) return true;
  if (text.front() != ' ' || text.size() == 1) return false;
  text.remove_prefix(1);
  return true;
}

const ir::StorageTime* storage_of(const ir::Profile& profile, ir::Location location) {
  for (const ir::StorageTime& entry : profile.storage) {
    if (entry.write && entry.location == ir::name_of(location)) return &entry;
  }
  return nullptr;
}

/// What the cluster file says about writing there; no bandwidth: nothing.
std::pair<BytesPerSecond, Seconds> declared(const models::Cluster& cluster, DeviceId device,
                                            ir::Location location) {
  const models::Node& node = cluster.node(cluster.device(device).node);
  if (location == ir::Location::host_memory) return {node.host_memory_bandwidth, {}};
  if (location == ir::Location::nvme) return {node.nvme_write, {}};
  if (location == ir::Location::cloud && cluster.storage) {
    return {cluster.storage->bandwidth, cluster.storage->latency};
  }
  return {};
}

/// Time to write `bytes` there in `files` files, if anything says how long that takes.
std::optional<Seconds> write_time(Bytes bytes, double files, ir::Location location, DeviceId device,
                                  const models::Cluster& cluster, const ir::Profile& profile,
                                  std::vector<std::string>& sources) {
  const char* name = ir::name_of(location);
  if (const ir::StorageTime* entry = storage_of(profile, location)) {
    sources.push_back(fmt::format("profile: writing to {}", name));
    return files * entry->latency + bytes / entry->bandwidth;
  }
  const auto [bandwidth, latency] = declared(cluster, device, location);
  if (!(bandwidth.value > 0)) return std::nullopt;
  sources.push_back(fmt::format("cluster: writing to {}", name));
  return files * latency + bytes / bandwidth;
}

/// Blocks of which the rank has parameters: its own, not those that it keeps for the next stage.
std::int64_t blocks_of(const ir::Program& program, RankId id) {
  const ir::Rank& rank = program.ranks[id.index()];
  std::set<BlockId> blocks;
  for (const ir::SegmentInfo& segment : program.segments) {
    if (segment.pipeline != rank.pipeline || segment.stage != rank.stage ||
        segment.group != rank.group || segment.redundant) {
      continue;
    }
    for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) blocks.insert(b);
  }
  return static_cast<std::int64_t>(blocks.size());
}

void add_once(const std::vector<std::string>& lines, std::vector<std::string>& out) {
  for (const std::string& line : lines) {
    if (std::find(out.begin(), out.end(), line) == out.end()) out.push_back(line);
  }
}

/// Mean of what every part should have taken; or the first problem.
std::variant<double, std::string> predict(const ir::Program& program,
                                          const std::vector<LoggedCheckpoint>& written,
                                          const std::vector<ir::Location>& places,
                                          const models::Cluster& cluster,
                                          const ir::Profile& profile, Seconds iteration,
                                          std::vector<std::string>& sources) {
  if (places.empty()) return "the run's inputs do not say where checkpoints were written to";
  struct Before {
    std::int64_t iteration = 0;
    Seconds write;
  };
  std::map<RankId, Before> before;
  double sum = 0;
  for (const LoggedCheckpoint& one : written) {
    auto priced = price_checkpoint(one.bytes, blocks_of(program, one.rank), places,
                                   program.rank(one.rank).device, cluster, profile);
    if (auto* problem = std::get_if<std::string>(&priced)) return std::move(*problem);
    const CheckpointPrice& price = std::get<CheckpointPrice>(priced);
    add_once(price.sources, sources);
    Seconds held = price.copy;
    if (const auto last = before.find(one.rank); last != before.end()) {
      const auto steps = static_cast<double>(one.iteration - last->second.iteration);
      held += std::max(Seconds{}, last->second.write - steps * iteration);
    }
    before[one.rank] = {one.iteration, price.write};
    sum += held.value;
  }
  return sum / static_cast<double>(written.size());
}

}  // namespace

std::variant<LoggedCheckpoint, std::string> parse_checkpoint(const std::string& detail) {
  LoggedCheckpoint out;
  std::string_view text = detail;
  std::int64_t bytes = 0;
  const bool good = take(text, "rank", out.rank.value) && take(text, "iteration", out.iteration) &&
                    take(text, "bytes", bytes) && take(text, "seconds", out.held.value) &&
                    text.empty() && out.held.value <= kLongestHold;
  if (!good) return fmt::format("'{}' is not '{}'", detail, kCheckpointForm);
  out.bytes = Bytes{static_cast<double>(bytes)};
  return out;
}

LoggedCheckpoints logged_checkpoints(const ir::Program& program, const ir::RunLog& log) {
  LoggedCheckpoints out;
  std::map<std::pair<std::int64_t, RankId>, LoggedCheckpoint> parts;
  for (const ir::LogEvent& event : log.events) {
    if (event.kind != kCheckpointEvent) continue;
    const auto parsed = parse_checkpoint(event.detail);
    if (const auto* problem = std::get_if<std::string>(&parsed)) {
      out.problems.push_back(*problem);
      continue;
    }
    const LoggedCheckpoint& one = std::get<LoggedCheckpoint>(parsed);
    if (one.rank.index() >= program.ranks.size()) {
      out.problems.push_back(
          fmt::format("'{}': the program has {} ranks", event.detail, program.ranks.size()));
      continue;
    }
    LoggedCheckpoint& part = parts[{one.iteration, one.rank}];
    part.rank = one.rank;
    part.iteration = one.iteration;
    part.bytes += one.bytes;
    part.held += one.held;
  }
  for (const auto& [key, part] : parts) out.written.push_back(part);
  return out;
}

std::variant<CheckpointPrice, std::string> price_checkpoint(Bytes bytes, std::int64_t files,
                                                            const std::vector<ir::Location>& places,
                                                            DeviceId device,
                                                            const models::Cluster& cluster,
                                                            const ir::Profile& profile) {
  CheckpointPrice out;
  const Bytes share = places.empty() ? bytes : bytes / static_cast<double>(places.size());
  const auto copy =
      write_time(share, 1, ir::Location::host_memory, device, cluster, profile, out.sources);
  if (copy) {
    out.copy = *copy;
  } else {
    out.sources.push_back("no price: copying the state to host memory counts as 0");
  }
  for (const ir::Location place : places) {
    const auto time =
        write_time(share, static_cast<double>(files), place, device, cluster, profile, out.sources);
    if (!time) {
      return fmt::format("neither the profile nor the cluster says how long writing to {} takes",
                         ir::name_of(place));
    }
    out.write += *time;
  }
  return out;
}

void describe(config::Visitor& v, CheckpointComparison& comparison) {
  v.required("checkpoints", comparison.checkpoints, "steps after which there is one; 0: none");
  v.required("parts", comparison.parts, "of ranks, all together");
  v.required("bytes", comparison.bytes, "of a part, mean");
  v.optional("predicted_seconds", comparison.predicted,
             "that a part holds its rank's training; mean");
  v.required("measured_seconds", comparison.measured, "the same");
  v.required("longest_seconds", comparison.longest, "measured");
  v.required("between_steps_seconds", comparison.between_steps,
             "measured: not counted in any iteration");
  v.required("problem", comparison.problem, "why nothing is predicted, or events are left out");
}

CheckpointComparison compare_checkpoints(const ir::Program& program, const ir::RunLog& measured,
                                         const std::vector<ir::Location>& places,
                                         const models::Cluster& cluster, const ir::Profile& profile,
                                         Seconds iteration) {
  CheckpointComparison out;
  const LoggedCheckpoints found = logged_checkpoints(program, measured);
  if (!found.problems.empty()) {
    out.problem = fmt::format("{} of its checkpoint events cannot be read: {}",
                              found.problems.size(), found.problems.front());
  }
  if (found.written.empty()) return out;
  out.parts = static_cast<std::int64_t>(found.written.size());
  const auto parts = static_cast<double>(out.parts);
  std::set<std::int64_t> iterations;
  for (const LoggedCheckpoint& one : found.written) {
    iterations.insert(one.iteration);
    out.bytes += one.bytes / parts;
    out.measured += one.held.value / parts;
    out.longest = std::max(out.longest, one.held.value);
  }
  out.checkpoints = static_cast<std::int64_t>(iterations.size());
  auto predicted =
      predict(program, found.written, places, cluster, profile, iteration, out.sources);
  if (const double* seconds = std::get_if<double>(&predicted)) {
    out.predicted = *seconds;
  } else {
    out.problem += (out.problem.empty() ? "" : "; ") + std::get<std::string>(predicted);
  }
  return out;
}

}  // namespace orrery::calibration
