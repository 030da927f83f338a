#include "sim/flow/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "sim/flow/backgrounds.h"
#include "sim/flow/event_queue.h"
#include "sim/flow/network.h"
#include "sim/flow/task_graph.h"

namespace orrery::sim {
class FlowEngine::Impl final : public Network::Listener {
 public:
  Impl(FlowPlatform platform, FlowOptions options)
      : network(std::move(platform), options, *this), options(options) {
    if (options.count_link_bytes) link_bytes.resize(network.links());
  }

  void flow_ended(std::int32_t task, bool complete) override {
    const std::size_t index = task;
    graph.flow(index).slot = -1;
    if (complete) {
      begin_tail(index);
    } else {
      settle(index, TaskState::failed);
    }
    drain();
  }

  /// Handles the events that are due, then starts what they made ready.
  void alarm() override {
    while (!events.empty() && events.top().time <= network.now()) {
      const std::int32_t subject = events.pop().subject;
      if (subject >= 0) {
        end_after(subject, backgrounds.owed(subject, network.now()));
      } else {
        call(as_size(~subject));
      }
    }
    drain();
  }

  /// Starts ready tasks and tasks that were added since the last call, until there are none; then
  /// sets the alarm. Settling pushes to `ready` instead of recursing.
  void drain() {
    if (draining || !started) return;
    draining = true;
    do {
      for (; next_ready < ready.size(); ++next_ready) start(ready[next_ready]);
      ready.clear();
      next_ready = 0;
      for (; committed < graph.size(); ++committed)
        if (graph.ready(committed)) ready.push_back(committed);
    } while (!ready.empty());
    draining = false;
    set_alarm();
  }

  void set_alarm() {
    if (events.empty()) {
      network.clear_alarm();
    } else {
      network.set_alarm(events.top().time);
    }
  }

  void run(double until) {
    ORRERY_CHECK(!inside, "run() from inside a callback");
    inside = started = true;
    drain();
    if (dirty) network.settle();  // for what callbacks of drain() canceled
    if (until < 0) {
      network.run();
    } else {
      network.run_until(until);
    }
    inside = started = dirty = false;
  }

  /// Between runs, makes cancellations and failures take effect at once.
  void settle_network() {
    dirty = inside;
    if (inside) return;
    inside = true;
    network.settle();
    inside = false;
  }

  void cancel(std::span<const TaskId> tasks) {
    for (const TaskId id : tasks) {
      const std::size_t task = checked(id);
      const TaskState state = graph.state(task);
      if (state != TaskState::waiting && state != TaskState::running) continue;
      if (graph.kind(task) == TaskKind::flow && graph.flow(task).slot >= 0)
        network.cancel(std::exchange(graph.flow(task).slot, -1));
      finish(task, TaskState::canceled);
    }
    drop_stale_events();
    settle_network();
  }

  /// Fails the running delays and the flows in their latency that satisfy `hit`.
  template <class Predicate>
  void fail_pending(Predicate hit) {
    std::vector<std::size_t> failed;
    for (const EventQueue::Event& event : events.events())
      if (event.subject >= 0 && hit(event.subject)) failed.push_back(event.subject);
    std::sort(failed.begin(), failed.end());
    for (const std::size_t task : failed)
      if (graph.state(task) == TaskState::running) settle(task, TaskState::failed);
    drop_stale_events();
    settle_network();
  }

  bool flow_alive(const TaskGraph::Flow& flow) {
    if (!hosts_alive(flow)) return false;
    return flow.source == flow.destination || network.alive(route_of(flow));
  }
  /// A flow on a route of its own has ~ of the route's number as its source.
  const Network::Route& route_of(const TaskGraph::Flow& flow) {
    if (flow.source < 0) return routes[~flow.source];
    return network.route(flow.source, flow.destination);
  }
  bool hosts_alive(const TaskGraph::Flow& flow) const {
    return flow.source < 0 || (network.host_on(flow.source) && network.host_on(flow.destination));
  }
  bool host_alive(int host) const { return host < 0 || network.host_on(host); }

  /// Fails the flows that still move bytes from or to a host that is off.
  void fail_flows_of_hosts() {
    for (const std::int32_t task : network.running()) {
      const std::size_t index = task;
      TaskGraph::Flow& flow = graph.flow(index);
      if (flow.slot < 0 || hosts_alive(flow)) continue;
      network.cancel(std::exchange(flow.slot, -1));
      settle(index, TaskState::failed);
    }
    drain();
  }

  void rewind(const Mark& mark) {
    graph.rewind(mark);
    backgrounds.rewind(mark);
    routes.resize(mark.routes);
    committed = std::min(committed, mark.tasks);
    const auto pending = ready.begin() + static_cast<std::ptrdiff_t>(next_ready);
    ready.erase(
        std::remove_if(pending, ready.end(), [&](std::size_t task) { return task >= mark.tasks; }),
        ready.end());
  }

  TaskId add_flow(std::int32_t source, std::int32_t destination, Bytes bytes, Seconds tail) {
    ORRERY_CHECK(std::isfinite(bytes.value) && bytes.value >= 0, "flow of {} bytes", bytes.value);
    ORRERY_CHECK(std::isfinite(tail.value) && tail.value >= 0, "latency of {} s", tail.value);
    return graph.add_flow({.bytes = static_cast<std::uint64_t>(std::llround(bytes.value)),
                           .tail = tail.value,
                           .source = source,
                           .destination = destination,
                           .slot = -1});
  }

  std::size_t checked(TaskId task) const {
    ORRERY_CHECK(task.valid() && task.index() < graph.size(), "no task {}", task.value);
    return task.index();
  }
  std::size_t waiting(TaskId task) const {
    const std::size_t index = checked(task);
    ORRERY_CHECK(graph.state(index) == TaskState::waiting, "task {} has started", task.value);
    return index;
  }
  void check_background(BackgroundId background) const {
    ORRERY_CHECK(background.valid() && background.index() < backgrounds.size(), "no background {}",
                 background.value);
  }
  void check_host(int host) const {
    ORRERY_CHECK(host >= 0 && as_size(host) < network.hosts(), "no host {}, the platform has {}",
                 host, network.hosts());
  }
  void check_link(LinkId link) const {
    ORRERY_CHECK(link.valid() && link.index() < network.links(), "no link {}, the platform has {}",
                 link.value, network.links());
  }

  Network network;
  FlowOptions options;
  TaskGraph graph;
  Backgrounds backgrounds;
  EventQueue events;  ///< Subject: a task, or ~ of an index into calls.
  std::vector<std::function<void()>> calls;
  std::vector<std::size_t> free_calls;
  std::array<Callback, 3> callbacks;
  std::vector<Bytes> link_bytes;
  std::vector<Network::Route> routes;
  std::size_t committed = 0;  ///< Tasks from here on were added since the last drain.

 private:
  void start(std::size_t task) {
    if (graph.state(task) != TaskState::waiting) return;
    graph.begin(task, network.now());
    backgrounds.began(task, network.now());
    switch (graph.kind(task)) {
      case TaskKind::barrier:
        return settle(task, TaskState::done);
      case TaskKind::delay:
        if (!host_alive(graph.delay_host(task))) return settle(task, TaskState::failed);
        return end_after(task, graph.delay_seconds(task));
      case TaskKind::flow:
        return start_flow(task);
    }
  }

  void start_flow(std::size_t task) {
    TaskGraph::Flow& flow = graph.flow(task);
    if (!flow_alive(flow)) return settle(task, TaskState::failed);
    if (flow.source == flow.destination) return begin_tail(task);
    const Network::Route& route = route_of(flow);
    flow.tail += route.latency;
    if (flow.bytes == 0 || route.links.empty()) return begin_tail(task);
    flow.slot = network.start(static_cast<std::int32_t>(task), route, flow.bytes);
  }

  void begin_tail(std::size_t task) { end_after(task, graph.flow(task).tail); }

  void end_after(std::size_t task, double seconds) {
    if (seconds > 0) {
      events.push(network.now() + seconds, static_cast<std::int32_t>(task));
    } else {
      settle(task, TaskState::done);
    }
  }

  void finish(std::size_t task, TaskState state) {
    graph.finish(task, state, network.now());
    backgrounds.ended(task, network.now());
  }

  void settle(std::size_t task, TaskState state) {
    finish(task, state);
    if (state == TaskState::done) {
      if (options.count_link_bytes && graph.kind(task) == TaskKind::flow)
        count_bytes(graph.flow(task));
      graph.release(task, [&](std::size_t after) {
        if (after < committed) ready.push_back(after);
      });
    }
    const Callback& callback = callbacks[index_of(graph.kind(task))];
    if (callback) callback({static_cast<std::int32_t>(task)}, state);
  }

  void count_bytes(const TaskGraph::Flow& flow) {
    if (flow.source == flow.destination) return;
    for (const LinkId link : route_of(flow).links)
      link_bytes[link.index()] += Bytes{static_cast<double>(flow.bytes)};
  }

  void call(std::size_t index) {
    const std::function<void()> callback = std::move(calls[index]);
    calls[index] = nullptr;
    free_calls.push_back(index);
    callback();
  }

  void drop_stale_events() {
    events.erase_if([&](std::int32_t subject) {
      return subject >= 0 && graph.state(subject) != TaskState::running;
    });
    if (!draining) set_alarm();
  }

  std::vector<std::size_t> ready;  ///< Queue: [next_ready, end).
  std::size_t next_ready = 0;
  bool draining = false;
  bool inside = false;   ///< SimGrid's loop is on the stack.
  bool started = false;  ///< Tasks may start.
  bool dirty = false;    ///< Something was canceled or turned off before SimGrid's next step.
};

FlowEngine::FlowEngine(FlowPlatform platform, FlowOptions options)
    : impl_(std::make_unique<Impl>(std::move(platform), options)) {}
FlowEngine::~FlowEngine() = default;

void FlowEngine::reserve(std::size_t tasks, std::size_t dependencies) {
  impl_->graph.reserve(tasks, dependencies);
}

TaskId FlowEngine::add_delay(Seconds duration, int host) {
  ORRERY_CHECK(std::isfinite(duration.value) && duration.value >= 0, "delay of {} s",
               duration.value);
  if (host >= 0) impl_->check_host(host);
  return impl_->graph.add_delay(duration.value, host < 0 ? -1 : host);
}

TaskId FlowEngine::add_flow(int source_host, int destination_host, Bytes bytes,
                            Seconds extra_latency) {
  impl_->check_host(source_host);
  impl_->check_host(destination_host);
  return impl_->add_flow(source_host, destination_host, bytes, extra_latency);
}

RouteId FlowEngine::add_route(std::vector<LinkId> links, Seconds latency) {
  for (const LinkId link : links) impl_->check_link(link);
  ORRERY_CHECK(std::isfinite(latency.value) && latency.value >= 0, "latency of {} s",
               latency.value);
  impl_->routes.push_back({std::move(links), latency.value});
  return {static_cast<std::int32_t>(impl_->routes.size() - 1)};
}

TaskId FlowEngine::add_flow(RouteId route, Bytes bytes, Seconds extra_latency) {
  ORRERY_CHECK(route.valid() && route.index() < impl_->routes.size(), "no route {}", route.value);
  return impl_->add_flow(~route.value, 0, bytes, extra_latency);
}

void FlowEngine::make_links() { impl_->network.make_links(); }

TaskId FlowEngine::add_barrier() { return impl_->graph.add_barrier(); }
void FlowEngine::add_dependency(TaskId before, TaskId after) {
  impl_->graph.add_dependency(before, after);
}

BackgroundId FlowEngine::add_background() { return impl_->backgrounds.add(); }
void FlowEngine::run_beside(BackgroundId background, TaskId first, TaskId last) {
  impl_->check_background(background);
  impl_->backgrounds.run(background, impl_->waiting(first), impl_->waiting(last));
}
void FlowEngine::slow_down(TaskId delay, BackgroundId background, double share) {
  impl_->check_background(background);
  ORRERY_CHECK(share >= 0 && share < 1, "a delay that loses {} of its speed", share);
  ORRERY_CHECK(kind(delay) == TaskKind::delay, "task {} is no delay", delay.value);
  impl_->backgrounds.slow_down(impl_->waiting(delay), background, share);
}

void FlowEngine::cancel(std::span<const TaskId> tasks) { impl_->cancel(tasks); }

FlowEngine::Mark FlowEngine::mark() const {
  Mark mark = impl_->graph.mark();
  mark.routes = impl_->routes.size();
  mark.backgrounds = impl_->backgrounds.size();
  mark.uses = impl_->backgrounds.uses();
  mark.slowed = impl_->backgrounds.slowed();
  return mark;
}
void FlowEngine::rewind(const Mark& mark) { impl_->rewind(mark); }
void FlowEngine::shrink(const Mark& mark) { impl_->graph.shrink(mark); }

void FlowEngine::run() { impl_->run(-1); }
void FlowEngine::run_until(Seconds time) {
  ORRERY_CHECK(std::isfinite(time.value) && time >= now(), "run_until({}) at {}", time.value,
               now().value);
  impl_->run(time.value);
}
Seconds FlowEngine::now() const { return {impl_->network.now()}; }

void FlowEngine::at(Seconds time, std::function<void()> callback) {
  ORRERY_CHECK(std::isfinite(time.value) && time >= now(), "at({}) at {}", time.value, now().value);
  ORRERY_CHECK(callback != nullptr, "at() needs a callback");
  Impl& impl = *impl_;
  if (impl.free_calls.empty()) {
    impl.free_calls.push_back(impl.calls.size());
    impl.calls.emplace_back();
  }
  const std::size_t index = impl.free_calls.back();
  impl.free_calls.pop_back();
  impl.calls[index] = std::move(callback);
  impl.events.push(time.value, ~static_cast<std::int32_t>(index));
}

void FlowEngine::on_end(TaskKind kind, Callback callback) {
  impl_->callbacks[index_of(kind)] = std::move(callback);
}

void FlowEngine::set_links(std::span<const LinkId> links, bool on) {
  for (const LinkId link : links) {
    impl_->check_link(link);
    impl_->network.set_link(link, on);
  }
  if (on) return;
  impl_->fail_pending([&](std::size_t task) {
    return impl_->graph.kind(task) == TaskKind::flow && !impl_->flow_alive(impl_->graph.flow(task));
  });
}

void FlowEngine::set_hosts(std::span<const int> hosts, bool on) {
  for (const int host : hosts) {
    impl_->check_host(host);
    impl_->network.set_host(host, on);
  }
  if (on) return;
  impl_->fail_pending([&](std::size_t task) {
    return impl_->graph.kind(task) == TaskKind::flow
               ? !impl_->flow_alive(impl_->graph.flow(task))
               : !impl_->host_alive(impl_->graph.delay_host(task));
  });
  impl_->fail_flows_of_hosts();
}

void FlowEngine::set_link_bandwidth(LinkId link, BytesPerSecond bandwidth) {
  impl_->check_link(link);
  ORRERY_CHECK(bandwidth.value > 0 && std::isfinite(bandwidth.value), "bandwidth {}",
               bandwidth.value);
  impl_->network.set_bandwidth(link, bandwidth.value);
}
bool FlowEngine::link_on(LinkId link) const {
  impl_->check_link(link);
  return impl_->network.link_on(link);
}
bool FlowEngine::host_on(int host) const {
  impl_->check_host(host);
  return impl_->network.host_on(host);
}

std::size_t FlowEngine::tasks() const { return impl_->graph.size(); }
TaskKind FlowEngine::kind(TaskId task) const { return impl_->graph.kind(impl_->checked(task)); }
TaskState FlowEngine::state(TaskId task) const { return impl_->graph.state(impl_->checked(task)); }

Seconds FlowEngine::start_time(TaskId task) const {
  ORRERY_CHECK(state(task) != TaskState::waiting, "task {} has not started", task.value);
  return {impl_->graph.start(task.index())};
}
Seconds FlowEngine::end_time(TaskId task) const {
  ORRERY_CHECK(state(task) >= TaskState::done, "task {} has not ended", task.value);
  return {impl_->graph.end(task.index())};
}

std::vector<TaskId> FlowEngine::unfinished() const {
  std::vector<TaskId> result;
  for (std::size_t task = 0; task < impl_->graph.size(); ++task)
    if (impl_->graph.state(task) < TaskState::done)
      result.push_back({static_cast<std::int32_t>(task)});
  return result;
}

const std::vector<Bytes>& FlowEngine::link_bytes() const {
  ORRERY_CHECK(impl_->options.count_link_bytes, "FlowOptions::count_link_bytes is off");
  return impl_->link_bytes;
}

std::vector<std::pair<std::string, std::string>> FlowEngine::effective_config() const {
  return impl_->network.effective_config();
}

}  // namespace orrery::sim
