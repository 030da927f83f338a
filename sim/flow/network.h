/// SimGrid behind a plain interface: the clock, one alarm, flows on links, resources on and off.
/// Private to sim/flow.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/flow/engine.h"

namespace orrery::sim {

class Network {
 public:
  /// Receives what happens; called in simulated time from inside run().
  class Listener {
   public:
    virtual ~Listener() = default;
    /// The flow that was started with `task` moved its last byte, or failed.
    virtual void flow_ended(std::int32_t task, bool complete) = 0;
    virtual void alarm() = 0;
  };
  struct Route {
    std::vector<LinkId> links;
    double latency = 0;  ///< Seconds.
  };

  Network(FlowPlatform platform, const FlowOptions& options, Listener& listener);
  ~Network();

  double now() const;
  void run();
  void run_until(double time);
  /// Outside run(): takes flows that were canceled or failed out of the network, and tells of
  /// them.
  void settle();
  /// One alarm at a time: replaces the one before.
  void set_alarm(double time);
  void clear_alarm();

  /// The route between two different hosts; valid until the next call.
  const Route& route(int source, int destination);
  /// Tasks of the flows that have not moved their last byte, ascending.
  std::vector<std::int32_t> running() const;
  void make_links();

  /// Whether every link of `route` is on.
  bool alive(const Route& route) const;
  /// Starts a flow without latency on a live route; the slot is for cancel().
  std::int32_t start(std::int32_t task, const Route& route, std::uint64_t bytes);
  /// Ends the flow without telling the listener.
  void cancel(std::int32_t slot);

  void set_link(LinkId link, bool on);
  void set_host(int host, bool on);
  void set_bandwidth(LinkId link, double bandwidth);
  bool link_on(LinkId link) const;
  bool host_on(int host) const;
  std::size_t links() const;
  std::size_t hosts() const;
  std::vector<std::pair<std::string, std::string>> effective_config() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::sim
