/// A small key-value store over TCP, through which the processes of a run find each other: where
/// ranks listen, what the agents of nodes report, what the launcher orders. One server, many
/// clients; values are short texts.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/net/socket.h"

namespace orrery::executor {

class StoreServer {
 public:
  /// Serves from construction to destruction, in threads of its own. Only clients with the token.
  StoreServer(Listener listener, std::string token);
  ~StoreServer();
  int port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A connection to the store. Thread-safe; calls of one client follow one another, so that a thread
/// that waits for long has a client of its own. All throw TransportError when the server is gone.
class StoreClient {
 public:
  StoreClient(const Endpoint& server, const std::string& token,
              std::chrono::milliseconds connect = std::chrono::milliseconds(20'000));
  ~StoreClient();

  void set(const std::string& key, const std::string& value);
  /// Waits until the key is there; none after `timeout` (0: does not wait).
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout);
  /// Adds to a number that starts from 0; returns the sum.
  std::int64_t add(const std::string& key, std::int64_t amount);
  void remove(const std::string& key);
  /// All keys that start with `prefix`, ascending, with their values.
  std::map<std::string, std::string> list(const std::string& prefix);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::executor
