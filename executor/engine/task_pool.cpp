#include "executor/engine/task_pool.h"

#include <utility>

namespace orrery::executor {

TaskPool::~TaskPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() <= idle_) return changed_.notify_one();
  try {
    threads_.emplace_back([this] { run(); });
  } catch (...) {
    tasks_.pop_back();
    throw;
  }
}

void TaskPool::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (tasks_.empty() && !stop_) {
      ++idle_;
      changed_.wait(lock);
      --idle_;
    }
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace orrery::executor
