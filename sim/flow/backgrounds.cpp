#include "sim/flow/backgrounds.h"

#include <iterator>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::sim {
namespace {

constexpr double kNothing = 1e-12;  ///< Seconds that nobody has to wait for.

}  // namespace

BackgroundId Backgrounds::add() {
  backgrounds_.emplace_back();
  return {static_cast<std::int32_t>(backgrounds_.size() - 1)};
}

void Backgrounds::run(BackgroundId background, std::size_t first, std::size_t last) {
  const auto use = static_cast<std::uint32_t>(uses_.size());
  uses_.push_back({background});
  first_[first].push_back(use);
  last_[last].push_back(use);
}

void Backgrounds::slow_down(std::size_t delay, BackgroundId background, double share) {
  if (slowed_of_task_.size() <= delay) slowed_of_task_.resize(delay + 1, 0);
  ORRERY_CHECK(slowed_of_task_[delay] == 0, "task {} is slowed down already", delay);
  slowed_.push_back({delay, background, share});
  slowed_of_task_[delay] = static_cast<std::uint32_t>(slowed_.size());
}

void Backgrounds::began(std::size_t task, double now) {
  if (task < slowed_of_task_.size() && slowed_of_task_[task] > 0) {
    Slowed& delay = slowed_[slowed_of_task_[task] - 1];
    delay.before = backgrounds_[delay.background.index()].elapsed(now);
  }
  if (first_.empty()) return;
  const auto found = first_.find(task);
  if (found == first_.end()) return;
  for (const std::uint32_t use : found->second) {
    uses_[use].running = true;
    Background& background = backgrounds_[uses_[use].background.index()];
    if (background.running++ == 0) background.since = now;
  }
}

void Backgrounds::ended(std::size_t task, double now) {
  if (last_.empty()) return;
  const auto found = last_.find(task);
  if (found == last_.end()) return;
  for (const std::uint32_t use : found->second) {
    if (!std::exchange(uses_[use].running, false)) continue;
    Background& background = backgrounds_[uses_[use].background.index()];
    if (--background.running == 0) background.total += now - background.since;
  }
}

double Backgrounds::owed(std::size_t delay, double now) {
  if (delay >= slowed_of_task_.size() || slowed_of_task_[delay] == 0) return 0;
  Slowed& slowed = slowed_[slowed_of_task_[delay] - 1];
  const double beside = backgrounds_[slowed.background.index()].elapsed(now) - slowed.before;
  const double owed = slowed.share * beside - slowed.given;
  if (owed <= kNothing) return 0;
  slowed.given += owed;
  return owed;
}

void Backgrounds::rewind(const FlowEngine::Mark& mark) {
  for (std::size_t i = mark.slowed; i < slowed_.size(); ++i) slowed_of_task_[slowed_[i].task] = 0;
  slowed_.erase(slowed_.begin() + static_cast<std::ptrdiff_t>(mark.slowed), slowed_.end());
  backgrounds_.resize(mark.backgrounds);
  uses_.resize(mark.uses);
  for (UsesOfTask* of_task : {&first_, &last_}) {
    for (auto uses = of_task->begin(); uses != of_task->end();) {
      std::erase_if(uses->second, [&](std::uint32_t use) { return use >= mark.uses; });
      uses = uses->second.empty() ? of_task->erase(uses) : std::next(uses);
    }
  }
}

}  // namespace orrery::sim
