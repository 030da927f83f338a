/// Storage of the engine's tasks: structs of arrays, about 60 bytes per task, dependencies
/// included.
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

  std::size_t size() const { return kind_.size(); }
  TaskKind kind(std::size_t task) const { return kind_[task]; }
  TaskState state(std::size_t task) const { return state_[task]; }
  double start(std::size_t task) const { return start_[task]; }
  double end(std::size_t task) const { return end_[task]; }
  bool ready(std::size_t task) const {
    return waits_[task] == 0 && state_[task] == TaskState::waiting;
  }
  double delay_seconds(std::size_t task) const { return delay_seconds_[payload_[task]]; }
  std::int32_t delay_host(std::size_t task) const { return delay_host_[payload_[task]]; }
  Flow& flow(std::size_t task) { return flows_[payload_[task]]; }

  void begin(std::size_t task, double now) {
    state_[task] = TaskState::running;
    start_[task] = now;
  }
  void finish(std::size_t task, TaskState state, double now) {
    if (state_[task] == TaskState::waiting) start_[task] = now;
    state_[task] = state;
    end_[task] = now;
  }
  /// Counts `task` as done for its successors and passes those that became ready to `visit`.
  template <class Visitor>
  void release(std::size_t task, Visitor visit) {
    const std::int32_t last = last_edge_[task];
    if (last < 0) return;
    std::int32_t at = last;
    do {
      at = edges_[at].next;
      const std::size_t after = edges_[at].to;
      --waits_[after];
      if (ready(after)) visit(after);
    } while (at != last);
  }

  FlowEngine::Mark mark() const {
    return {size(), edges_.size(), delay_seconds_.size(), flows_.size(), 0};
  }
  void rewind(const FlowEngine::Mark& mark);
  void shrink(const FlowEngine::Mark& mark);

 private:
  struct Edge {
    std::int32_t to, next;
  };
  TaskId add(TaskKind kind, std::size_t payload);
  void drop_edges_from(std::size_t first_edge, std::size_t kept_tasks);

  std::vector<TaskKind> kind_;
  std::vector<TaskState> state_;
  std::vector<std::int32_t> waits_;      ///< Predecessors that are not done.
  std::vector<std::int32_t> last_edge_;  ///< Into edges_, whose next is the first edge; or -1.
  std::vector<std::uint32_t> payload_;   ///< Into the arrays of its kind.
  std::vector<double> start_, end_;
  std::vector<double> delay_seconds_;
  std::vector<std::int32_t> delay_host_;
  std::vector<Flow> flows_;
  std::vector<Edge> edges_;
};

}  // namespace orrery::sim
