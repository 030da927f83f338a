/// Small platforms for the tests of sim/flow.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "sim/flow/engine.h"
#include "tests/sim/in_child.h"

namespace orrery::sim {

/// Every host has an up link 2h and a down link 2h + 1; a switch without limits joins them.
class StarRoutes final : public RouteTable {
 public:
  using Latency = std::function<Seconds(int source, int destination)>;
  explicit StarRoutes(Latency latency) : latency_(std::move(latency)) {}
  void route(int source, int destination, std::vector<LinkId>& links,
             Seconds& latency) const override {
    links.push_back({2 * source});
    links.push_back({2 * destination + 1});
    latency = latency_(source, destination);
  }

 private:
  Latency latency_;
};

inline FlowPlatform star(const std::vector<BytesPerSecond>& up_and_down,
                         StarRoutes::Latency latency) {
  FlowPlatform platform;
  platform.hosts = static_cast<int>(up_and_down.size() / 2);
  for (std::size_t link = 0; link < up_and_down.size(); ++link)
    platform.links.push_back({.bandwidth = up_and_down[link], .latency = {}});
  platform.routes = std::make_shared<StarRoutes>(std::move(latency));
  return platform;
}

inline constexpr BytesPerSecond kNic{50e9};
inline constexpr Seconds kLatency{5e-6};
inline LinkId up(int host) { return {2 * host}; }
inline LinkId down(int host) { return {2 * host + 1}; }

/// `hosts` hosts with a 50 GB/s full-duplex NIC each; 5 us between any two.
inline FlowPlatform cluster(int hosts) {
  return star(std::vector<BytesPerSecond>(as_size(2 * hosts), kNic),
              [](int, int) { return kLatency; });
}

/// Builds an engine in a child process and returns the numbers that `work` returns there.
inline std::vector<double> simulate(const FlowPlatform& platform,
                                    const std::function<std::vector<double>(FlowEngine&)>& work,
                                    FlowOptions options = {}) {
  const std::string bytes = in_child([&] {
    FlowEngine engine(platform, options);
    const std::vector<double> numbers = work(engine);
    std::string sent(numbers.size() * sizeof(double), '\0');
    std::memcpy(sent.data(), numbers.data(), sent.size());
    return sent;
  });
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

inline double number(TaskState state) { return static_cast<double>(state); }
inline constexpr double kWaiting = 0, kRunning = 1, kDone = 2, kFailed = 3, kCanceled = 4;

}  // namespace orrery::sim
