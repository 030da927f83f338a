/// The simulation core: a graph of delays, flows and barriers, run in simulated time. Delays cost
/// one timer each, flows share links max-min (SimGrid's CM02 solver). Resources can fail and return
/// while it runs, tasks can be added and canceled at any moment.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "sim/flow/platform.h"

namespace orrery::sim {

/// Tasks are numbered from 0 in the order in which they are added.
using TaskId = Id<struct TaskTag>;

enum class TaskKind : std::uint8_t { delay, flow, barrier };

/// Routes of their own are numbered from 0 in the order in which they are added.
using RouteId = Id<struct RouteTag>;

/// What slows delays while it runs; numbered from 0 in the order in which they are added.
using BackgroundId = Id<struct BackgroundTag>;

/// waiting -> running -> done or failed; waiting or running -> canceled.
enum class TaskState : std::uint8_t { waiting, running, done, failed, canceled };

struct FlowOptions {
  /// Count the bytes that finished flows carried over each link: one more route per flow.
  bool count_link_bytes = false;
  /// Flows that end closer together than this may end at the same instant. Positive; SimGrid's
  /// own default.
  Seconds timing_precision{1e-9};
  /// Flows that share no link with another go through SimGrid's solver, too, instead of a closed
  /// form: slower, with the same times. For tests.
  bool solve_all = false;
};

/// One engine per process, for the life of the process: SimGrid's clock and platform are global.
/// A second construction aborts, even after the first engine is gone; fork (fork.h) to get a fresh
/// copy of a built engine. All times are seconds on one clock, which starts at 0 and only grows.
///
/// Latency is added *after* the bytes of a flow have passed. (SimGrid's own latency phase would
/// also make the shares of a common link inversely proportional to the latencies of its flows.)
/// Bytes are whole numbers: fractions are rounded to the nearest.
class FlowEngine {
 public:
  /// Called when a task becomes done or failed, after its successors were released. It may call
  /// every member except run, run_until and on_end. It must not throw.
  using Callback = std::function<void(TaskId, TaskState)>;
  /// A position in the order of tasks, for rewind().
  struct Mark {
    std::size_t tasks = 0, edges = 0, delays = 0, flows = 0, routes = 0;
    std::size_t backgrounds = 0, uses = 0, slowed = 0;  ///< Of backgrounds.
  };

  explicit FlowEngine(FlowPlatform platform, FlowOptions options = {});
  ~FlowEngine();
  FlowEngine(const FlowEngine&) = delete;
  FlowEngine& operator=(const FlowEngine&) = delete;

  // ---- the graph. Tasks start when run() runs, or after the callback that adds them returns. ----
  void reserve(std::size_t tasks, std::size_t dependencies);
  /// Takes `duration` (finite, >= 0). If `host` >= 0, the delay fails when that host is off.
  TaskId add_delay(Seconds duration, int host = -1);
  /// Moves `bytes` along the route, then waits for the route's latency plus `extra_latency` (the
  /// remaining latencies of a ring, for example). Fails if a link or an end is off or goes off. A
  /// flow from a host to itself occupies no link and has no latency but the extra one.
  TaskId add_flow(int source_host, int destination_host, Bytes bytes, Seconds extra_latency = {});
  /// A route that belongs to no pair of hosts. A link that is named n times is occupied n times: a
  /// flow at rate r takes n r of it. `latency` as RouteTable's.
  RouteId add_route(std::vector<LinkId> links, Seconds latency);
  /// As between two hosts, along that route; no host can make it fail.
  TaskId add_flow(RouteId route, Bytes bytes, Seconds extra_latency = {});
  /// Takes no time.
  TaskId add_barrier();
  /// `after` starts only once `before` is done; never, if `before` fails or is canceled. `after`
  /// must still be waiting.
  void add_dependency(TaskId before, TaskId after);
  BackgroundId add_background();
  /// The background runs from the start of `first` to the end of `last`, however that ends; both
  /// are waiting. It may run for several pairs of tasks, also at the same time.
  void run_beside(BackgroundId background, TaskId first, TaskId last);
  /// While the background runs, the delay advances at 1 - `share` of its speed: it takes `share` of
  /// the time that they have in common longer. 0 <= share < 1; the delay is waiting and has no
  /// other background.
  void slow_down(TaskId delay, BackgroundId background, double share);
  /// Waiting and running tasks become canceled, without a callback; ended ones stay as they are.
  void cancel(std::span<const TaskId> tasks);

  Mark mark() const;
  /// Forgets every task, route and background that was added after `mark`; their ids will be given
  /// again. No
  /// task of them may be running. Keeps the memory of a long replay bounded.
  void rewind(const Mark& mark);
  /// Gives back to the system what the tasks that were added after `mark` needed until they ended;
  /// all have. Their kinds, states and times stay. No task may be added until rewind(mark).
  void shrink(const Mark& mark);

  /// Makes all links known to SimGrid, which else learns of each when a flow first uses it: worth
  /// it before many forks that use most of them.
  void make_links();

  // ---- time ----
  /// Runs until nothing is pending: no running task and no callback of at().
  void run();
  /// Runs up to and including `time`, which is now() afterwards. `time` >= now().
  void run_until(Seconds time);
  Seconds now() const;
  /// Calls `callback` at `time` (>= now()); a trace is one callback that schedules the next.
  void at(Seconds time, std::function<void()> callback);
  /// Replaces the callback of one kind; an empty function means none.
  void on_end(TaskKind kind, Callback callback);

  // ---- resources. Turning off fails, in this instant, the flows that use the resource (also those
  // that wait for latency) and the delays on the host. ----
  void set_links(std::span<const LinkId> links, bool on);
  void set_link(LinkId link, bool on) { set_links({&link, 1}, on); }
  void set_hosts(std::span<const int> hosts, bool on);
  void set_host(int host, bool on) { set_hosts({&host, 1}, on); }
  /// Positive; running flows continue at their new share. For a dead link use set_link.
  void set_link_bandwidth(LinkId link, BytesPerSecond bandwidth);
  bool link_on(LinkId link) const;
  bool host_on(int host) const;

  // ---- results ----
  std::size_t tasks() const;
  TaskKind kind(TaskId task) const;
  TaskState state(TaskId task) const;
  /// The task must have started or been canceled (then the time of the cancellation).
  Seconds start_time(TaskId task) const;
  /// The task must be done, failed or canceled.
  Seconds end_time(TaskId task) const;
  /// Tasks that are waiting or running, in order: after run(), those whose predecessors failed.
  std::vector<TaskId> unfinished() const;
  /// Bytes carried by flows that are done, by LinkId. Requires FlowOptions::count_link_bytes.
  const std::vector<Bytes>& link_bytes() const;
  /// SimGrid's version and every option of it that affects results, for the effective config.
  std::vector<std::pair<std::string, std::string>> effective_config() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// As in "3.32.0"; needs no engine.
std::string simgrid_version();

}  // namespace orrery::sim
