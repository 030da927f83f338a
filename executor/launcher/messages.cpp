#include "executor/launcher/messages.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "executor/net/message.h"
#include "models/base/file.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

/// That one message may break before its launcher counts as gone.
constexpr int kMostConnections = 3;
constexpr std::chrono::milliseconds kReconnect{5'000};

}  // namespace

/// In hexadecimal digits: a run that diverges has losses that files do not take for numbers.
static void describe(config::Visitor& v, SampleLoss& loss) {
  v.required("sample", loss.sample, "of the step");
  std::string value = fmt::format("{:a}", loss.loss);
  v.required("loss", value, "nats");
  loss.loss = std::strtod(value.c_str(), nullptr);
}

static void describe(config::Visitor& v, LinkTraffic& link) {
  v.required("peer", link.peer, "rank");
  v.required("sent_bytes", link.sent_bytes, "to it");
  v.required("received_bytes", link.received_bytes, "from it");
  v.required("messages_sent", link.messages_sent, "to it");
}

static void describe(config::Visitor& v, StepReport& report) {
  v.required("step", report.step, "that was done");
  v.required("start_ns", report.start_ns, "on the rank's clock");
  v.required("end_ns", report.end_ns, "on the rank's clock");
  v.required("peak_bytes", report.peak_bytes, "of the back end");
  v.required("losses", report.losses, "of samples");
}

void describe(config::Visitor& v, MemberStatus& status) {
  v.required("kind", status.kind, "how it ended");
  v.required("at_ns", status.at_ns, "on the member's clock");
  v.required("last_step", status.last_step, "whose state it has");
  v.required("message", status.message, "why");
  v.required("traffic", status.traffic, "with its peers");
}

void describe(config::Visitor& v, ClockReport& clock) {
  v.required("offset_ns", clock.offset_ns, "from the clock of rank 0");
  v.required("uncertainty_ns", clock.uncertainty_ns, "of the offset");
  v.required("posted_ns", clock.posted_ns, "on the member's clock");
  v.required("boot", clock.boot, "of its machine");
}

void describe(config::Visitor& v, EventReport& event) {
  v.required("at_ns", event.at_ns, "on the member's clock");
  v.required("kind", event.kind, "of event");
  v.required("detail", event.detail, "in words");
}

std::vector<std::pair<MemberStatus::Kind, const char*>> enum_names(MemberStatus::Kind) {
  using enum MemberStatus::Kind;
  return {{done, "done"}, {lost, "lost"}, {error, "error"}, {stopped, "stopped"}};
}

std::string to_text(const StepReport& report) {
  const StepReport head{
      report.step, report.start_ns, report.end_ns, report.peak_bytes, report.losses, {}, {}};
  ir::RunLog log;
  log.spans = report.spans;
  log.memory = report.memory;
  return to_message(head) + "\n" + ir::serialize(log);
}

StepReport step_report_from(const std::string& text) {
  const std::size_t line_end = text.find('\n');
  if (line_end == std::string::npos) throw std::runtime_error("a step report without a log");
  auto report = from_message<StepReport>(text.substr(0, line_end), "step report");
  auto log = ir::parse_run_log(std::string_view(text).substr(line_end + 1));
  if (const auto* problem = std::get_if<std::string>(&log)) {
    throw std::runtime_error("a step report whose log " + *problem);
  }
  report.spans = std::move(std::get<ir::RunLog>(log).spans);
  report.memory = std::move(std::get<ir::RunLog>(log).memory);
  return report;
}

std::string boot_id() {
  std::string id;
  if (read_file("/proc/sys/kernel/random/boot_id", id)) return "";
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

Reporter::Reporter(const Endpoint& store, const std::string& token)
    : store_(store),
      token_(token),
      client_(std::in_place, store, token),
      thread_([this] { run(); }) {}

Reporter::~Reporter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Reporter::post(std::string key, std::string value) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    queue_.emplace_back(std::move(key), std::move(value));
  }
  changed_.notify_all();
}

void Reporter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return broken_ || (queue_.empty() && !busy_); });
}

void Reporter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto [key, value] = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    const bool sent = send(key, value);
    lock.lock();
    busy_ = false;
    if (!sent) {
      broken_ = true;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

bool Reporter::send(const std::string& key, const std::string& value) {
  for (int failures = 0; failures < kMostConnections; ++failures) {
    try {
      if (!client_) client_.emplace(store_, token_, kReconnect);
      client_->set(key, value);
      return true;
    } catch (const TransportError&) {
      client_.reset();
    }
  }
  // The launcher is gone: the watcher of the process ends it.
  return false;
}

}  // namespace orrery::executor
