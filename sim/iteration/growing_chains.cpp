#include "sim/iteration/growing_chains.h"

#include "models/base/check.h"

namespace orrery::sim {

void GrowingChains::add(IterationChain& chain) {
  chains_.push_back(&chain);
  extend(chains_.size() - 1);
}

void GrowingChains::extend(std::size_t chain) {
  const std::vector<TaskId> gates = chains_[chain]->extend();
  const int ended = chains_[chain]->count() - 2;
  for (const TaskId gate : gates) gates_[gate.value] = {chain, ended};
  left_[{chain, ended}] = gates.size();
}

void GrowingChains::run() {
  engine_.on_end(TaskKind::barrier, [this](TaskId task, TaskState) { passed(task); });
  engine_.run();
  engine_.on_end(TaskKind::barrier, {});
  ORRERY_CHECK(enough_, "{} programs are stuck", chains_.size());
}

void GrowingChains::passed(TaskId task) {
  const auto found = gates_.find(task.value);
  if (enough_ || found == gates_.end()) return;
  const auto [chain, iteration] = found->second;
  gates_.erase(found);
  if (chains_[chain]->count() == iteration + 2) extend(chain);
  if (--left_[{chain, iteration}] > 0) return;
  left_.erase({chain, iteration});
  enough_ = finished_(chain, iteration, engine_.end_time(task));
  if (enough_) engine_.cancel(engine_.unfinished());
}

}  // namespace orrery::sim
