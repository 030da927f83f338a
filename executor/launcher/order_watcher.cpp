#include "executor/launcher/order_watcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace orrery::executor {

using std::chrono::milliseconds;

OrderWatcher::OrderWatcher(const RankEnvironment& environment, milliseconds heartbeat)
    : device_(environment.device),
      client_(environment.store, environment.token),
      thread_([this, heartbeat] { run(heartbeat); }) {}

OrderWatcher::~OrderWatcher() {
  leaving_ = true;
  thread_.join();
}

bool OrderWatcher::canceled(std::int64_t generation) const {
  const std::lock_guard lock(mutex_);
  return stopped_ || generation <= canceled_;
}

void OrderWatcher::attach(Transport* transport, std::int64_t generation) {
  const std::lock_guard lock(mutex_);
  transport_ = transport;
  generation_ = generation;
  obey();
}

/// Under the lock.
void OrderWatcher::obey() {
  if (transport_ == nullptr) return;
  if (stopped_) transport_->abort("the launcher stops the run");
  if (generation_ <= canceled_) transport_->abort("the launcher ends this generation");
}

void OrderWatcher::run(milliseconds heartbeat) {
  try {
    std::int64_t beats = 0;
    for (std::int64_t n = 0; !leaving_;) {
      client_.set(fmt::format("beat/{}", device_), std::to_string(++beats));
      const auto order = client_.get(fmt::format("command/{}", n), heartbeat);
      if (!order) continue;
      ++n;
      const std::lock_guard lock(mutex_);
      if (*order == "stop") {
        stopped_ = true;
      } else if (order->rfind("cancel ", 0) == 0) {
        canceled_ = std::max<std::int64_t>(canceled_, std::stoll(order->substr(7)));
      }
      obey();
    }
  } catch (const TransportError& error) {
    if (stopped_ || leaving_) return;
    fmt::print(stderr, "orrery: device {} ends: its launcher is gone ({})\n", device_,
               error.what());
    _exit(kStoreLost);
  }
}

}  // namespace orrery::executor
