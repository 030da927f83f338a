#include "executor/launcher/reports.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <variant>

#include "models/base/file.h"
#include "models/ir/wire.h"

namespace orrery::executor {

std::string to_text(const StepReport& report) {
  std::string text = fmt::format("{} {} {} {} {}", report.step, report.start_ns, report.end_ns,
                                 report.peak_bytes, report.losses.size());
  for (const SampleLoss& loss : report.losses) {
    text += fmt::format(" {} {:a}", loss.sample, loss.loss);
  }
  ir::RunLog log;
  log.spans = report.spans;
  log.memory = report.memory;
  return text + "\n" + ir::serialize(log);
}

StepReport step_report_from(const std::string& text) {
  const std::size_t line_end = text.find('\n');
  std::istringstream words(text.substr(0, line_end));
  StepReport report;
  std::size_t losses = 0;
  words >> report.step >> report.start_ns >> report.end_ns >> report.peak_bytes >> losses;
  for (std::size_t i = 0; i < losses && words; ++i) {
    SampleLoss loss;
    std::string value;
    words >> loss.sample >> value;
    loss.loss = std::strtod(value.c_str(), nullptr);
    report.losses.push_back(loss);
  }
  if (!words || line_end == std::string::npos) {
    throw std::runtime_error("a step report that cannot be read");
  }
  auto log = ir::parse_run_log(std::string_view(text).substr(line_end + 1));
  if (const auto* problem = std::get_if<std::string>(&log)) {
    throw std::runtime_error("a step report whose log " + *problem);
  }
  report.spans = std::move(std::get<ir::RunLog>(log).spans);
  report.memory = std::move(std::get<ir::RunLog>(log).memory);
  return report;
}

std::string to_text(const MemberStatus& status) {
  std::string text = fmt::format("{} {} {} {}", static_cast<int>(status.kind), status.at_ns,
                                 status.last_step, status.traffic.size());
  for (const LinkTraffic& link : status.traffic) {
    text += fmt::format(" {} {} {} {}", link.peer, link.sent_bytes, link.received_bytes,
                        link.messages_sent);
  }
  return text + "\n" + status.message;
}

MemberStatus member_status_from(const std::string& text) {
  const std::size_t line_end = text.find('\n');
  std::istringstream words(text.substr(0, line_end));
  MemberStatus status;
  int kind = 0;
  std::size_t links = 0;
  words >> kind >> status.at_ns >> status.last_step >> links;
  for (std::size_t i = 0; i < links && words; ++i) {
    LinkTraffic link;
    words >> link.peer >> link.sent_bytes >> link.received_bytes >> link.messages_sent;
    status.traffic.push_back(link);
  }
  if (!words || line_end == std::string::npos || kind < 0 || kind > 3) {
    throw std::runtime_error("a status that cannot be read");
  }
  status.kind = static_cast<MemberStatus::Kind>(kind);
  status.message = text.substr(line_end + 1);
  return status;
}

std::string step_key(std::int64_t generation, std::int64_t step, int member) {
  return fmt::format("g/{}/out/step/{:012d}/{:06d}", generation, step, member);
}

std::string boot_id() {
  std::string id;
  if (read_file("/proc/sys/kernel/random/boot_id", id)) return "";
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

Reporter::Reporter(const Endpoint& store, const std::string& token)
    : client_(store, token), thread_([this] { run(); }) {}

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
    bool failed = false;
    try {
      client_.set(key, value);
    } catch (const TransportError&) {
      // The launcher is gone: the watcher of the process ends it.
      failed = true;
    }
    lock.lock();
    busy_ = false;
    if (failed) {
      broken_ = true;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace orrery::executor
