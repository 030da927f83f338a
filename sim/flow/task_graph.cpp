#include "sim/flow/task_graph.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::sim {
namespace {

constexpr std::size_t kMaxIndex = INT32_MAX;

/// Keeps the first `size` elements and no more memory than they need.
template <class T>
void truncate(std::vector<T>& values, std::size_t size) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(size), values.end());
  values.shrink_to_fit();
}

}  // namespace

void TaskGraph::reserve(std::size_t tasks, std::size_t dependencies) {
  tasks_.reserve(tasks);
  edges_.reserve(dependencies);
}

TaskId TaskGraph::add(TaskKind kind, std::size_t payload) {
  ORRERY_CHECK(size() < kMaxIndex, "more than {} tasks", kMaxIndex);
  ORRERY_CHECK(!shrunk_, "a task after shrink(), before rewind()");
  tasks_.push_back({.payload = static_cast<std::uint32_t>(payload), .kind = kind});
  return {static_cast<std::int32_t>(size() - 1)};
}

TaskId TaskGraph::add_delay(double seconds, std::int32_t host) {
  delays_.push_back({seconds, host});
  return add(TaskKind::delay, delays_.size() - 1);
}

TaskId TaskGraph::add_flow(const Flow& flow) {
  flows_.push_back(flow);
  return add(TaskKind::flow, flows_.size() - 1);
}

TaskId TaskGraph::add_barrier() { return add(TaskKind::barrier, 0); }

void TaskGraph::add_dependency(TaskId before, TaskId after) {
  ORRERY_CHECK(before.valid() && before.index() < size(), "no task {}", before.value);
  ORRERY_CHECK(after.valid() && after.index() < size(), "no task {}", after.value);
  ORRERY_CHECK(state(after.index()) == TaskState::waiting, "task {} has started", after.value);
  ORRERY_CHECK(before != after, "task {} cannot wait for itself", after.value);
  if (state(before.index()) == TaskState::done) return;
  ORRERY_CHECK(edges_.size() < kMaxIndex, "more than {} dependencies", kMaxIndex);
  ++tasks_[after.index()].waits;
  const auto edge = static_cast<std::int32_t>(edges_.size());
  std::int32_t& last = tasks_[before.index()].last_edge;
  if (last < 0) {
    edges_.push_back({after.value, edge});
  } else {
    Edge& previous = edges_[last];
    const Edge added{after.value, previous.next};
    previous.next = edge;
    edges_.push_back(added);
  }
  last = edge;
}

void TaskGraph::drop_edges_from(std::size_t first_edge, std::size_t kept_tasks) {
  for (std::size_t edge = first_edge; edge < edges_.size(); ++edge) {
    const std::size_t after = edges_[edge].to;
    ORRERY_CHECK(after >= kept_tasks || state(after) != TaskState::waiting,
                 "kept task {} waits for a task or dependency that is forgotten", after);
  }
  const auto next = [&](std::int32_t edge) { return edges_[edge].next; };
  for (std::size_t task = 0; task < kept_tasks; ++task) {
    const std::int32_t last = tasks_[task].last_edge;
    if (last < 0 || as_size(last) < first_edge) continue;
    const std::int32_t first = next(last);
    std::int32_t kept_last = -1;
    for (std::int32_t at = first; as_size(at) < first_edge; at = next(at)) kept_last = at;
    if (kept_last >= 0) edges_[kept_last].next = first;
    tasks_[task].last_edge = kept_last;
  }
}

void TaskGraph::rewind(const FlowEngine::Mark& mark) {
  ORRERY_CHECK(mark.tasks <= size() && mark.edges <= edges_.size(), "mark of {} tasks, have {}",
               mark.tasks, size());
  for (std::size_t task = mark.tasks; task < size(); ++task)
    ORRERY_CHECK(state(task) != TaskState::running, "task {} is running", task);
  drop_edges_from(mark.edges, mark.tasks);
  tasks_.resize(mark.tasks);
  delays_.resize(mark.delays);
  flows_.resize(mark.flows);
  edges_.resize(mark.edges);
  shrunk_ = false;
}

void TaskGraph::shrink(const FlowEngine::Mark& mark) {
  ORRERY_CHECK(mark.tasks <= size() && mark.edges <= edges_.size(), "mark of {} tasks, have {}",
               mark.tasks, size());
  for (std::size_t task = mark.tasks; task < size(); ++task)
    ORRERY_CHECK(state(task) >= TaskState::done, "task {} has not ended", task);
  drop_edges_from(mark.edges, mark.tasks);
  for (std::size_t task = mark.tasks; task < size(); ++task) tasks_[task].last_edge = -1;
  shrunk_ = true;
  truncate(edges_, mark.edges);
  truncate(delays_, mark.delays);
  truncate(flows_, mark.flows);
#ifdef __GLIBC__
  malloc_trim(0);  // glibc keeps free pages between blocks in use
#endif
}

}  // namespace orrery::sim
