#include "planners/metis/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "models/cost/memory.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

bool MetisProgress::stop() {
  const bool hopeful = patience_ == 0 || work() < patience_ || !best_.empty();
  if (!canceled(input_) && hopeful && (budget_ == 0 || work() < budget_)) return false;
  report_.complete = false;
  return true;
}

void MetisProgress::charge(std::int64_t units) {
  report_.work += units;
  if (budget_ > 0) report_.work = std::min(report_.work, budget_);
}

bool MetisProgress::spend(std::int64_t& most, std::int64_t units) {
  if (most == 0 || stop()) return false;
  most = most < 0 ? most : std::max<std::int64_t>(0, most - units);
  charge(units);
  return true;
}

void MetisProgress::offer(double ms, const std::function<ir::Plan()>& build) {
  if (!(ms < kNever) || (full() && !(ms < worst()))) return;
  const Seconds estimate{ms / 1e3};
  ir::Plan plan = build();
  const ir::MemoryVerdict verdict =
      models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile);
  if (!verdict.fits()) {
    forbid_by_memory(report_, estimate, [&] {
      return fmt::format("{}: {}", in_words(plan, input_.workload), verdict.explain());
    });
    return;
  }
  best_.insert(ms);
  if (best_.size() > wanted_) best_.erase(std::prev(best_.end()));
  std::string what = in_words(plan, input_.workload);
  ranking_.offer(estimate, std::move(plan), std::move(what));
}

}  // namespace orrery::planners
