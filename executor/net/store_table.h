/// What the store holds, and what it answers to its clients, whoever carries the messages. Private
/// to executor/net.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "executor/net/store_channel.h"

namespace orrery::executor {

enum class StoreCommand : std::uint32_t { set = 1, get, add, remove, list };

/// Thread-safe.
class StoreTable {
 public:
  /// A get waits for its key. Throws TransportError for what no client says.
  StoreMessage answer(const StoreMessage& message);
  /// Ends what waits, now and later.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> numbers_;
  bool stop_ = false;
};

/// Keys and values of the answer to a list. Throws TransportError.
std::map<std::string, std::string> list_from(const std::string& text);

}  // namespace orrery::executor
