/// A lab that lives as long as a test, and functions that run in its nodes, each in a process.
#pragma once
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "executor/net/ring.h"
#include "executor/net/tcp_transport.h"
#include "executor/netlab/lab.h"
#include "executor/netlab/namespaces.h"
#include "models/base/subprocess.h"

namespace orrery::executor {

/// Name and state folder are this process's own.
class LiveLab {
 public:
  explicit LiveLab(NetlabSpec wanted) : spec(std::move(wanted)) {
    spec.name = fmt::format("test-{}", getpid());
    std::string folder = std::filesystem::temp_directory_path() / "orrery-netlab-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
    options.state_folders = {folder};
  }
  ~LiveLab() {
    try {
      netlab_down(spec, options);
    } catch (const NetlabError& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::filesystem::remove_all(options.state_folders[0]);
  }
  LiveLab(const LiveLab&) = delete;
  LiveLab& operator=(const LiveLab&) = delete;

  /// Runs body(node) in each of the nodes at the same time; their results, NaN where one failed.
  std::vector<double> run(const std::vector<int>& nodes,
                          const std::function<double(int)>& body) const {
    constexpr unsigned kLimit = 60;  // s
    std::vector<std::pair<Subprocess, Socket>> children;
    for (const int node : nodes) {
      std::array<int, 2> ends{};
      if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
      Socket from(ends[0]);
      const Socket to(ends[1]);
      std::fflush(nullptr);
      SubprocessOptions child;
      child.body = [&] {
        alarm(kLimit);
        try {
          enter_namespace(namespace_name(spec, node));
          const double result = body(node);
          return write(to.fd(), &result, sizeof result) == sizeof result ? 0 : 1;
        } catch (const std::exception& error) {
          std::fprintf(stderr, "node %d: %s\n", node, error.what());
          return 1;
        }
      };
      children.emplace_back(Subprocess(child), std::move(from));
    }
    std::vector<double> results;
    for (auto& [child, from] : children) {
      double result = 0;
      if (read(from.fd(), &result, sizeof result) != sizeof result) result = std::nan("");
      child.wait();
      results.push_back(result);
    }
    return results;
  }

  NetlabSpec spec;
  NetlabOptions options;
};

using LabClock = std::chrono::steady_clock;
inline double seconds_since(LabClock::time_point start) {
  return std::chrono::duration<double>(LabClock::now() - start).count();
}

/// The first of several measurements that is near enough, or the last one of half a minute. Other
/// work on the machine makes a link slower for as long as it runs; a wrong link always is.
inline double first_near(const std::function<double()>& measure,
                         const std::function<bool(double)>& near_enough) {
  const auto start = LabClock::now();
  double value = measure();
  while (!near_enough(value) && seconds_since(start) < 30) value = measure();
  return value;
}

inline constexpr int kLabPort = 5201;

inline Socket lab_connection(bool listens, const std::string& address) {
  const auto deadline = LabClock::now() + std::chrono::seconds(20);
  Socket socket = listens ? Listener(address, kLabPort).accept(deadline)
                          : connect_to({address, kLabPort}, deadline, -1);
  if (!socket.open()) throw std::runtime_error("nobody connected");
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

/// Bytes per second at which the second node receives `bytes` of one TCP connection.
inline double tcp_rate(const LiveLab& lab, int from, int to, std::size_t bytes) {
  const auto results = lab.run({from, to}, [&](int node) {
    const Socket socket = lab_connection(node == to, netlab_address(to));
    std::vector<std::byte> data(bytes);
    const auto deadline = LabClock::now() + std::chrono::seconds(50);
    std::byte sign{};
    if (node == from) {
      write_all(socket, data, deadline, -1);
      read_all(socket, {&sign, 1}, deadline, -1);
      return 0.0;
    }
    read_all(socket, std::span(data).first(1), deadline, -1);
    const auto start = LabClock::now();
    read_all(socket, std::span(data).subspan(1), deadline, -1);
    const double rate = static_cast<double>(bytes) / seconds_since(start);
    write_all(socket, {&sign, 1}, deadline, -1);
    return rate;
  });
  return results[1];
}

/// Least round trip of small TCP messages, in seconds.
inline double tcp_round_trip(const LiveLab& lab, int from, int to, int rounds = 40) {
  const auto results = lab.run({from, to}, [&](int node) {
    const Socket socket = lab_connection(node == to, netlab_address(to));
    std::array<std::byte, 64> data{};
    const auto deadline = LabClock::now() + std::chrono::seconds(50);
    double least = 1e9;
    for (int i = 0; i < rounds; ++i) {
      const auto start = LabClock::now();
      if (node == from) write_all(socket, data, deadline, -1);
      read_all(socket, data, deadline, -1);
      if (node == to) write_all(socket, data, deadline, -1);
      least = std::min(least, seconds_since(start));
    }
    return least;
  });
  return results[0];
}

/// Seconds that the slowest rank takes for a ring all-reduce of `bytes` over one rank on each node,
/// the least of `repeats`; NaN where a sum is wrong.
inline double ring_seconds(const LiveLab& lab, std::size_t bytes, int repeats) {
  const int size = static_cast<int>(lab.spec.nodes.size());
  std::vector<int> nodes;
  std::vector<Endpoint> endpoints;
  for (int node = 0; node < size; ++node) {
    nodes.push_back(node);
    endpoints.push_back({netlab_address(node), kLabPort});
  }
  const auto results = lab.run(nodes, [&](int rank) {
    TcpOptions options;
    options.token = "a token";
    const auto transport =
        make_tcp_transport(rank, Listener(netlab_address(rank), kLabPort), endpoints, options);
    const RingGroup group{nodes, rank};
    const auto reduce = [&](std::vector<float>& values, std::uint64_t step) {
      all_reduce(*transport, group, ElementType::f32, std::as_writable_bytes(std::span(values)),
                 {step, 1, 0});
    };
    double least = std::nan("");
    for (int i = 0; i < repeats; ++i) {
      std::vector<float> ready(size, 1);
      std::vector<float> values(bytes / sizeof(float), static_cast<float>(rank + 1));
      const auto step = static_cast<std::uint64_t>(i);
      reduce(ready, 3 * step);
      const auto start = LabClock::now();
      reduce(values, 3 * step + 1);
      const double own = seconds_since(start);
      const auto sum = static_cast<float>(size * (size + 1) / 2);
      if (std::any_of(values.begin(), values.end(), [&](float v) { return v != sum; })) {
        return std::nan("");
      }
      least = std::isnan(least) ? own : std::min(least, own);
      reduce(ready, 3 * step + 2);
    }
    return least;
  });
  return *std::max_element(results.begin(), results.end());
}

/// 2 (n - 1) / n size / rate + 2 (n - 1) latency, at the least rate of the lab's ports.
inline double ring_bound(const NetlabSpec& spec, std::size_t bytes) {
  double rate = 1e300, latency = 0;
  const int size = static_cast<int>(spec.nodes.size());
  for (int node = 0; node < size; ++node) {
    rate = std::min(rate, spec.nodes[node].rate.value);
    latency = std::max(latency, netlab_latency(spec, node, (node + 1) % size).value);
  }
  return 2.0 * (size - 1) / size * static_cast<double>(bytes) / rate + 2 * (size - 1) * latency;
}

/// Nodes with equal ports.
inline NetlabSpec equal_nodes(int count, double bits_per_second, double latency) {
  NetlabSpec spec{"test", {}, {}, {}};
  for (int i = 0; i < count; ++i) {
    spec.nodes.push_back({fmt::format("n{}", i), {bits_per_second / 8}, {latency / 2}, -1, 1, 1});
  }
  return spec;
}

}  // namespace orrery::executor
