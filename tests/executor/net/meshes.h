/// Runs a function on every rank of a mesh, each in a thread of its own, over the named transport.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/net/tcp_transport.h"
#include "executor/net/thread_transport.h"

namespace orrery::executor {

/// Limits that only a hang meets, however busy the machine; tests of limits set their own.
inline TcpOptions test_options() {
  TcpOptions options;
  options.token = "a token";
  options.connect = std::chrono::milliseconds(60'000);
  options.deadline = std::chrono::milliseconds(60'000);
  options.heartbeat = std::chrono::milliseconds(50);
  options.silence = std::chrono::milliseconds(20'000);
  return options;
}

/// What each rank threw, if anything.
inline std::vector<std::exception_ptr> run_mesh(const std::string& kind, int size,
                                                const std::function<void(Transport&)>& body,
                                                const TcpOptions& options = test_options()) {
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::unique_ptr<Transport>> local;
  std::vector<Listener> listeners;
  std::vector<Endpoint> endpoints;
  if (kind == "threads") local = make_thread_transports(size);
  for (int rank = 0; kind == "tcp" && rank < size; ++rank) {
    listeners.emplace_back();
    endpoints.push_back({"127.0.0.1", listeners.back().port()});
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::size_t index = rank;
      try {
        std::unique_ptr<Transport> transport =
            kind == "threads"
                ? std::move(local[index])
                : make_tcp_transport(rank, std::move(listeners[index]), endpoints, options);
        body(*transport);
      } catch (...) {
        errors[index] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// The first error in words; empty: none.
inline std::string first_error(const std::vector<std::exception_ptr>& errors) {
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& problem) {
      return problem.what();
    }
  }
  return "";
}

}  // namespace orrery::executor
