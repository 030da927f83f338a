#include "executor/launcher/generation_tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "executor/engine/worker.h"
#include "executor/net/clock.h"
#include "executor/net/message.h"
#include "models/ir/wire.h"

namespace orrery::executor {

GenerationTracker::GenerationTracker(const ir::Program& program, std::int64_t number,
                                     std::vector<std::int32_t> members, std::int64_t origin_ns)
    : program_(program),
      number_(number),
      members_(std::move(members)),
      origin_ns_(origin_ns),
      clocks_(members_.size()),
      statuses_(members_.size()) {}

void GenerationTracker::take(const std::string& rest, const std::string& value) {
  std::string text = rest;
  std::replace(text.begin(), text.end(), '/', ' ');
  std::istringstream words(text);
  std::string kind;
  std::int64_t first = -1;
  std::int64_t second = -1;
  words >> kind >> first;
  if (kind == "step") words >> second;
  const std::int64_t member = kind == "step" ? second : first;
  if (!words || member < 0 || member >= static_cast<std::int64_t>(members_.size())) {
    throw std::runtime_error("a report that cannot be read: " + rest);
  }
  const auto m = static_cast<int>(member);
  if (kind == "clock") {
    take_clock(m, from_message<ClockReport>(value, rest));
  } else if (kind == "step") {
    steps_[first][m] = step_report_from(value);
  } else if (kind == "status") {
    statuses_[m] = from_message<MemberStatus>(value, rest);
  } else if (kind == "event" && seen_.insert(rest).second) {
    events_.push_back({m, from_message<EventReport>(value, rest)});
  }
}

void GenerationTracker::take_clock(int member, const ClockReport& clock) {
  clocks_[member] = clock;
  // The launcher's own clock is compared with rank 0's only by when its message came, to some
  // milliseconds, unless they share a machine.
  if (member == 0 && clock.boot != boot_id()) rank0_minus_launcher_ = clock.posted_ns - now_ns();
}

void GenerationTracker::add_event(std::int64_t launcher_ns, const std::string& kind,
                                  const std::string& detail) {
  events_.push_back({-1, {launcher_ns, kind, detail}});
}

std::int64_t GenerationTracker::run_time(int member, std::int64_t ns) const {
  const std::int64_t origin = origin_ns_ + rank0_minus_launcher_;
  if (member < 0) return ns + rank0_minus_launcher_ - origin;
  const auto& clock = clocks_[member];
  return ns - (clock ? clock->offset_ns : 0) - origin;
}

bool GenerationTracker::finished(const Reports& reports) const {
  return static_cast<int>(reports.size()) == ranks();
}

std::pair<std::int64_t, std::int64_t> GenerationTracker::extent(const Reports& reports) const {
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const auto& [member, report] : reports) {
    start = std::min(start, run_time(member, report.start_ns));
    end = std::max(end, run_time(member, report.end_ns));
  }
  return {start, end};
}

std::vector<StepLine> GenerationTracker::take_finished() {
  std::vector<StepLine> out;
  for (auto it = steps_.upper_bound(given_); it != steps_.end(); ++it) {
    const auto& [step, reports] = *it;
    if (!finished(reports)) break;
    given_ = step;
    std::vector<SampleLoss> losses;
    for (const auto& [member, report] : reports) {
      losses.insert(losses.end(), report.losses.begin(), report.losses.end());
    }
    auto [start, end] = extent(reports);
    if (program_.header.optimizer_start == ir::OptimizerStart::staggered) {
      start = end_of_step(step - 1).value_or(start);
    }
    StepLine line;
    line.generation = number_;
    line.step = step;
    line.loss = mean_loss(std::move(losses), program_.header.sequence_length);
    // Without the sign that a processor happens to give it.
    if (std::isnan(line.loss)) line.loss = std::numeric_limits<double>::quiet_NaN();
    line.start_seconds = static_cast<double>(start) * 1e-9;
    line.seconds = static_cast<double>(end - start) * 1e-9;
    line.tokens_per_second = static_cast<double>(program_.header.global_batch) *
                             static_cast<double>(program_.header.sequence_length) / line.seconds;
    out.push_back(line);
  }
  return out;
}

std::optional<std::int64_t> GenerationTracker::end_of_step(std::int64_t step) const {
  const auto it = steps_.find(step);
  if (it == steps_.end() || !finished(it->second)) return std::nullopt;
  return extent(it->second).second;
}

std::int64_t GenerationTracker::last_step(std::int64_t none) const {
  std::int64_t last = none;
  for (const auto& [step, reports] : steps_) {
    if (finished(reports)) last = std::max(last, step);
  }
  return last;
}

std::optional<std::int64_t> GenerationTracker::last_event(const std::string& kind) const {
  std::optional<std::int64_t> last;
  for (const Event& event : events_) {
    if (event.report.kind != kind) continue;
    const std::int64_t at = run_time(event.member, event.report.at_ns);
    last = std::max(last.value_or(at), at);
  }
  return last;
}

std::optional<std::int64_t> GenerationTracker::first_step_end() const {
  for (const auto& [step, reports] : steps_) {
    if (finished(reports)) return extent(reports).second;
  }
  return std::nullopt;
}

std::vector<EventReport> GenerationTracker::take_events() {
  std::vector<EventReport> out;
  for (; given_events_ < events_.size(); ++given_events_) {
    if (events_[given_events_].member >= 0) out.push_back(events_[given_events_].report);
  }
  return out;
}

std::vector<std::string> GenerationTracker::details(const std::string& kind) const {
  std::vector<std::string> out;
  for (const Event& event : events_) {
    if (event.report.kind == kind) out.push_back(event.report.detail);
  }
  return out;
}

std::string GenerationTracker::state_found() const {
  const std::vector<std::string> loaded = details("loaded");
  if (loaded.empty() || loaded.size() < members_.size()) return {};
  // "step N: A slices from own memory, B from peers, ...", as StateFetch says it.
  constexpr std::array kSources = {"own memory", "peers", "local checkpoints", "the cloud"};
  std::array<std::int64_t, kSources.size()> slices{};
  std::int64_t step = 0;
  for (const std::string& detail : loaded) {
    std::string plain = detail;
    std::replace_if(
        plain.begin(), plain.end(), [](char c) { return c < '0' || c > '9'; }, ' ');
    std::istringstream numbers(plain);
    numbers >> step;
    for (std::int64_t& sum : slices) {
      std::int64_t count = 0;
      if (numbers >> count) sum += count;
    }
  }
  std::string from;
  for (std::size_t i = 0; i < kSources.size(); ++i) {
    if (slices[i] == 0) continue;
    from += fmt::format("{}{} from {}", from.empty() ? "" : ", ", slices[i], kSources[i]);
  }
  if (from.empty()) return "initial weights: no complete state is left";
  return fmt::format("state after step {}: slices {}", step, from);
}

GenerationSummary GenerationTracker::summary() const {
  GenerationSummary out;
  out.number = number_;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::size_t index = rank;
    RankSummary one;
    one.rank = rank;
    one.device = members_[index];
    if (clocks_[index]) {
      one.clock_offset_ns = clocks_[index]->offset_ns;
      one.clock_uncertainty_ns = clocks_[index]->uncertainty_ns;
    }
    for (const auto& [step, reports] : steps_) {
      const auto it = reports.find(rank);
      if (it != reports.end()) one.peak_bytes = std::max(one.peak_bytes, it->second.peak_bytes);
    }
    if (statuses_[index]) {
      for (const LinkTraffic& link : statuses_[index]->traffic) {
        one.sent_bytes += link.sent_bytes;
        one.received_bytes += link.received_bytes;
        if (link.sent_bytes > 0) out.links.push_back({rank, link.peer, link.sent_bytes});
      }
    }
    out.ranks.push_back(one);
  }
  out.events = log().events;
  return out;
}

ir::RunLog GenerationTracker::log() const {
  ir::RunLog log;
  log.program_hash = ir::program_hash(program_);
  log.source = "executor";
  log.generation = static_cast<std::int32_t>(number_);
  for (const auto& [step, reports] : steps_) {
    for (const auto& [member, report] : reports) {
      for (ir::Span span : report.spans) {
        span.start = {run_time(member, span.start.nanoseconds)};
        span.end = {run_time(member, span.end.nanoseconds)};
        log.spans.push_back(span);
      }
      for (ir::MemorySample sample : report.memory) {
        sample.at = {run_time(member, sample.at.nanoseconds)};
        log.memory.push_back(sample);
      }
    }
    if (!finished(reports)) continue;
    const auto [start, end] = extent(reports);
    log.iterations.push_back({step, {start}, {end}});
  }
  std::sort(log.spans.begin(), log.spans.end(), [](const ir::Span& a, const ir::Span& b) {
    return std::tie(a.rank, a.op, a.start) < std::tie(b.rank, b.op, b.start);
  });
  std::stable_sort(log.memory.begin(), log.memory.end(), [](const auto& a, const auto& b) {
    return std::tie(a.rank, a.at) < std::tie(b.rank, b.at);
  });
  for (const auto& [member, event] : events_) {
    // Details of these are read by programs, and name their rank themselves.
    const bool plain = member < 0 || event.kind == "checkpoint";
    log.events.push_back({{run_time(member, event.at_ns)},
                          event.kind,
                          plain ? event.detail : fmt::format("rank {}: {}", member, event.detail)});
  }
  std::sort(log.events.begin(), log.events.end());
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::size_t index = rank;
    if (clocks_[index]) {
      log.clocks.push_back({{rank}, {clocks_[index]->offset_ns}, {clocks_[index]->uncertainty_ns}});
    }
    if (!statuses_[index]) continue;
    for (const LinkTraffic& link : statuses_[index]->traffic) {
      if (link.sent_bytes == 0) continue;
      log.links.push_back({fmt::format("rank {} to rank {}", rank, link.peer), BytesPerSecond{0},
                           Bytes{static_cast<double>(link.sent_bytes)}});
    }
  }
  return log;
}

}  // namespace orrery::executor
