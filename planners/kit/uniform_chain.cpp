#include "planners/kit/uniform_chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/base/ids.h"
#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

void check_host_size(config::Visitor& v, const UniformChainSettings& settings) {
  v.between("gpus_per_host", settings.gpus_per_host, 0, 1 << 20);
  check_power_of_two(v, "gpus_per_host", settings.gpus_per_host);
}

std::vector<StageStep> UniformStages::steps(int first, int last, int choice) {
  const int layers = last - first + 1;
  const int from = view_.representative(first, layers);
  const std::size_t n = costs_.layers();
  memo_.resize(choices_.size() * n * (n + 1));
  auto& known = memo_[(as_size(choice) * n + as_size(from)) * (n + 1) + as_size(layers)];
  if (!known) known = price(from, layers, choice);
  return *known;
}

std::pair<Bytes, int> UniformStages::hardest_layer() const {
  const auto hardest = std::max_element(least_need_.begin(), least_need_.end());
  return {*hardest, static_cast<int>(hardest - least_need_.begin())};
}

void UniformStages::note_need(int layer, Bytes need) {
  Bytes& least = least_need_[layer];
  if (least == Bytes{} || need < least) least = need;
}

bool UniformChainSearch::proceed() {
  if (must_end(input_, report_.work)) {
    report_.complete = false;
    return false;
  }
  ++report_.work;
  return true;
}

void UniformChainSearch::note_memory(const UniformStages& stages, const UniformView& view,
                                     const std::function<std::string()>& what) {
  memory_.rejected += stages.rejected();
  const auto [need, layer] = stages.hardest_layer();
  const Bytes excess = need - view.capacity();
  if (excess <= Bytes{} || (!memory_.witness.empty() && excess >= least_excess_)) return;
  least_excess_ = excess;
  memory_.witness = fmt::format("{}: layer {} alone needs {:.2f} GiB {}, {} has {:.2f} GiB for it",
                                what(), layer, need.value / 0x1p30, words_.at_best,
                                view.smallest_gpu(), std::max(0.0, view.capacity().value / 0x1p30));
}

/// Why there is nothing to search.
std::optional<models::Infeasible> UniformChainSearch::missing() {
  const auto schedule = models::preferred_schedule(input_.job.allowed.schedules);
  if (!schedule) {
    return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
  }
  schedule_ = *schedule;
  if (input_.job.allowed.recompute.empty() || input_.job.allowed.zero_stages.empty()) {
    return models::Infeasible{"job", "the job allows no recompute setting or no ZeRO stage"};
  }
  if (input_.devices.empty() || costs_.layers() < 1 || input_.job.global_batch < 1) {
    return models::Infeasible{
        "input", fmt::format("{} devices, {} layers, a batch of {}", input_.devices.size(),
                             costs_.layers(), input_.job.global_batch)};
  }
  return refuse();
}

models::Infeasible UniformChainSearch::nothing(const std::vector<int>& sizes) const {
  if (!report_.complete) return {words_.stages, "the search was ended before the first plan"};
  if (memory_.rejected == 0) {
    return {
        words_.stages,
        fmt::format("no chain of {} over {} devices (hosts of {}) shares {} layers and {} of {}",
                    words_.stages, input_.devices.size(), fmt::join(sizes, " or "), costs_.layers(),
                    words_.shared, input_.job.global_batch)};
  }
  if (!memory_.witness.empty()) return {kDeviceMemory, memory_.witness};
  return {kDeviceMemory,
          fmt::format("every layer fits alone, but no chain of {} holds all layers with the "
                      "activations of the stages ahead",
                      words_.stages)};
}

PlannerResult UniformChainSearch::run() {
  report_.work_unit = "tables";
  if (const auto no = missing()) return {*no, report_};
  std::vector<int> sizes = host_sizes(input_);
  if (grid_.gpus_per_host > 0) sizes = {grid_.gpus_per_host};
  for (const int size : sizes) {
    if (!report_.complete) break;
    const UniformView view(input_, costs_, size, grid_.speed);
    if (view.devices() == 0) continue;
    if (view.devices() < std::ssize(input_.devices)) {
      report_.notes.push_back(fmt::format("hosts of {}: {} of {} GPUs, the rest fills no host",
                                          size, view.devices(), input_.devices.size()));
    }
    sweep(view);
  }
  if (memory_.rejected > 0) report_.constraints.push_back(memory_);
  const models::Infeasible none = nothing(sizes);
  return ranking_.finish(words_.planner, grid_.evaluate_top, std::move(report_), none);
}

}  // namespace orrery::planners
