#include "executor/net/store_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>
#include <utility>

#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

/// That a get waits, whatever it says: clocks end.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

}  // namespace

StoreMessage StoreTable::answer(const StoreMessage& message) {
  std::unique_lock lock(mutex_);
  switch (static_cast<StoreCommand>(message.code)) {
    case StoreCommand::set:
      values_[message.key] = message.value;
      changed_.notify_all();
      return {1, 0, "", ""};
    case StoreCommand::get:
      changed_.wait_for(lock, std::clamp(milliseconds(message.number), milliseconds(0), kLongest),
                        [&] { return stop_ || values_.contains(message.key); });
      if (const auto it = values_.find(message.key); it != values_.end()) {
        return {1, 0, "", it->second};
      }
      return {};
    case StoreCommand::add: {
      std::int64_t& sum = numbers_[message.key];
      if (__builtin_add_overflow(sum, message.number, &sum)) {
        throw TransportError(TransportError::Kind::corrupt, -1,
                             "a sum in the store that no number holds");
      }
      values_[message.key] = std::to_string(sum);
      changed_.notify_all();
      return {1, sum, "", ""};
    }
    case StoreCommand::remove:
      values_.erase(message.key);
      numbers_.erase(message.key);
      return {1, 0, "", ""};
    case StoreCommand::list: {
      // Texts with their lengths in front.
      std::string out;
      for (auto it = values_.lower_bound(message.key);
           it != values_.end() && it->first.starts_with(message.key); ++it) {
        out +=
            fmt::format("{} {} {}{}", it->first.size(), it->second.size(), it->first, it->second);
      }
      return {1, 0, "", std::move(out)};
    }
  }
  throw TransportError(TransportError::Kind::corrupt, -1, "unknown command to the store");
}

void StoreTable::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

std::map<std::string, std::string> list_from(const std::string& text) {
  std::map<std::string, std::string> out;
  std::size_t at = 0;
  const auto refuse = [] {
    throw TransportError(TransportError::Kind::corrupt, -1, "a list of the store that is none");
  };
  const auto number = [&] {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    at = static_cast<std::size_t>(end - text.data()) + 1;
    if (error != std::errc() || at > text.size()) refuse();
    return value;
  };
  while (at < text.size()) {
    const std::size_t key_bytes = number();
    const std::size_t value_bytes = number();
    if (key_bytes > text.size() - at || value_bytes > text.size() - at - key_bytes) refuse();
    out[text.substr(at, key_bytes)] = text.substr(at + key_bytes, value_bytes);
    at += key_bytes + value_bytes;
  }
  return out;
}

}  // namespace orrery::executor
