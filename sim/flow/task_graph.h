/// Storage of the engine's tasks: 32 bytes each, so that an event touches one line of the cache,
/// and about 30 for what they do and their dependencies.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/flow/engine.h"

namespace orrery::sim {

/// Tasks, their dependency counters and successors. Successors of a task form a circular list in
/// one array, in the order in which they were added, because tasks may be added at any moment.
class TaskGraph {
 public:
  struct Flow {
    std::uint64_t bytes;
    double tail;  ///< Seconds from the last byte to the end.
    std::int32_t source, destination;
    std::int32_t slot;  ///< Of the running network activity, -1 if there is none.
  };

  void reserve(std::size_t tasks, std::size_t dependencies);
  TaskId add_delay(double seconds, std::int32_t host);
  TaskId add_flow(const Flow& flow);
  TaskId add_barrier();
  void add_dependency(TaskId before, TaskId after);

  std::size_t size() const { return tasks_.size(); }
  TaskKind kind(std::size_t task) const { return tasks_[task].kind; }
  TaskState state(std::size_t task) const { return tasks_[task].state; }
  double start(std::size_t task) const { return tasks_[task].start; }
  double end(std::size_t task) const { return tasks_[task].end; }
  bool ready(std::size_t task) const {
    return tasks_[task].waits == 0 && tasks_[task].state == TaskState::waiting;
  }
  double delay_seconds(std::size_t task) const { return delays_[tasks_[task].payload].seconds; }
  std::int32_t delay_host(std::size_t task) const { return delays_[tasks_[task].payload].host; }
  Flow& flow(std::size_t task) { return flows_[tasks_[task].payload]; }

  void begin(std::size_t task, double now) {
    tasks_[task].state = TaskState::running;
    tasks_[task].start = now;
  }
  void finish(std::size_t task, TaskState state, double now) {
    Task& ended = tasks_[task];
    if (ended.state == TaskState::waiting) ended.start = now;
    ended.state = state;
    ended.end = now;
  }
  /// Counts `task` as done for its successors and passes those that became ready to `visit`.
  template <class Visitor>
  void release(std::size_t task, Visitor visit) {
    const std::int32_t last = tasks_[task].last_edge;
    if (last < 0) return;
    std::int32_t at = last;
    do {
      at = edges_[at].next;
      const std::size_t after = edges_[at].to;
      --tasks_[after].waits;
      if (ready(after)) visit(after);
    } while (at != last);
  }

  FlowEngine::Mark mark() const {
    return {size(), edges_.size(), delays_.size(), flows_.size(), 0};
  }
  void rewind(const FlowEngine::Mark& mark);
  void shrink(const FlowEngine::Mark& mark);

 private:
  struct Task {
    double start = 0, end = 0;
    std::int32_t waits = 0;       ///< Predecessors that are not done.
    std::int32_t last_edge = -1;  ///< Into edges_, whose next is the first edge; or -1.
    std::uint32_t payload = 0;    ///< Into the array of its kind.
    TaskKind kind{};
    TaskState state = TaskState::waiting;
  };
  static_assert(sizeof(Task) == 32);
  struct Delay {
    double seconds;
    std::int32_t host;
  };
  struct Edge {
    std::int32_t to, next;
  };
  TaskId add(TaskKind kind, std::size_t payload);
  void drop_edges_from(std::size_t first_edge, std::size_t kept_tasks);

  std::vector<Task> tasks_;
  std::vector<Delay> delays_;
  std::vector<Flow> flows_;
  std::vector<Edge> edges_;
  bool shrunk_ = false;  ///< Since rewind(): what tasks did is forgotten.
};

}  // namespace orrery::sim
