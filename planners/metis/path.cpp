#include "planners/metis/path.h"

#include <algorithm>
#include <numeric>

#include "models/cost/memory.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

constexpr int kAttempts = 3;           ///< To divide layers. [public code]
constexpr std::int64_t kDivision = 4;  ///< Units of work: about the time of four arrangements.

}  // namespace

MetisPaths::MetisPaths(const MetisProblem& problem, MetisStages& stages, MetisBounds& bounds,
                       MetisProgress& progress)
    : problem_(problem),
      settings_(problem.settings),
      tables_(problem.tables),
      stages_(stages),
      bounds_(bounds),
      progress_(progress),
      balancer_(problem.tables.demand, !problem.settings.as_published()) {}

const MetisStageChoice& MetisPaths::choice(const MetisPath& path, int stage) const {
  return stages_.choice(path.first[stage], path.size(stage), path.batch, path.step[stage]);
}

void MetisPaths::follow(MetisPath& path) {
  const int stages = path.stages();
  std::vector<double> memory;
  std::vector<int> cuts;
  if (bounds_.hopeless(path)) return;
  do {
    bool valid = true, broken = false;
    for (int s = 0; s < stages && valid; ++s) {
      const MetisStageChoice& each = choice(path, s);
      valid = each.valid;
      broken = broken || each.broken;
    }
    if (!valid) continue;
    if (bounds_.hopeless(path)) return;
    ++progress_.report().plans_examined;
    progress_.charge(kDivision);
    if (broken) {
      ++progress_.broken;
      continue;
    }
    int attempts = 0;
    if (!divide_layers(path, memory, cuts, attempts)) {
      memory.clear();
      continue;
    }
    offer(path, cuts);
    if (attempts == 1) return;
  } while (advance(path, memory) == Next::moved);
}

/// One stage's tensor-parallel degree is doubled: where least memory is left, or before that is
/// known where the data-parallel degree is largest.
MetisPaths::Next MetisPaths::advance(MetisPath& path, const std::vector<double>& memory) const {
  int best = -1;
  double least = kNever;
  for (int s = 0; s < static_cast<int>(path.step.size()); ++s) {
    const int data = path.size(s) >> path.step[s];
    if (data == 1) continue;
    const double key = memory.empty() ? 1.0 / data : memory[s];
    if (best >= 0 && !(key < least)) continue;
    best = s;
    least = key;
  }
  if (best < 0) return Next::end;
  ++path.step[best];
  // Degrees only grow: a stage beyond what was measured stays there.
  return path.step[best] < stages_.steps((*path.sizes)[best]) ? Next::moved : Next::end;
}

/// 1 / time of the whole model on the stage. Without layer balancing every replica counts as an
/// average one of the cluster. [Metis, Figure 6: the baseline]
double MetisPaths::speed(const MetisStageChoice& choice) const {
  if (settings_.layer_balance == MetisBalance::capacity) return 1.0 / choice.total_ms;
  double sum = 0;
  int count = 0;
  for (const int type : stages_.placement().type) {
    double time = 0;
    for (const int part : binary_parts(choice.nominal)) {
      const MetisEntry* entry = tables_.find(type, choice.tensor, part);
      time += entry == nullptr ? kNever : entry->total_ms;
    }
    if (time == kNever) continue;
    sum += time;
    ++count;
  }
  return count == 0 ? 1.0 / choice.total_ms : count / sum;
}

void MetisPaths::count_memory(const MetisPath& path, const std::vector<int>& cuts,
                              std::vector<double>& have, std::vector<double>& need) {
  const int stages = path.stages();
  have.clear();
  need.clear();
  for (int s = 0; s < stages; ++s) {
    const MetisStageChoice& each = choice(path, s);
    const int begin = cuts[s], end = cuts[s + 1];
    if (!stages_.device_rule()) {
      have.push_back(stages_.group_memory(path.first[s], path.size(s)));
      need.push_back(stages_.layer_memory(each, begin, end));
    } else if (begin == end) {
      have.push_back(1);
      need.push_back(0.001);
    } else {
      const int in_flight = models::micro_batches_in_flight(
          problem_.schedule, stages, s, static_cast<int>(problem_.batches[path.batch]), 1);
      const auto [has, needs] = stages_.device_memory(each, begin, end, in_flight);
      have.push_back(has);
      need.push_back(needs);
    }
  }
}

/// False when memory does not allow it after all attempts. `memory`: what is left in each stage.
bool MetisPaths::divide_layers(const MetisPath& path, std::vector<double>& memory,
                               std::vector<int>& cuts, int& attempts) {
  std::vector<double> capacity, have, need;
  double sum = 0;
  for (int s = 0; s < path.stages(); ++s) {
    capacity.push_back(speed(choice(path, s)));
    sum += capacity.back();
  }
  for (double& each : capacity) each /= sum;
  for (attempts = 1; attempts <= kAttempts; ++attempts) {
    const auto divided = balancer_.divide(capacity);
    if (!divided) return false;
    cuts = *divided;
    count_memory(path, cuts, have, need);
    memory.clear();
    for (std::size_t s = 0; s < have.size(); ++s) memory.push_back(have[s] - need[s]);
    if (*std::min_element(memory.begin(), memory.end()) >= 0) return true;
    const auto shifted = shift_capacity(capacity, have, need);
    if (!shifted) return false;
    capacity = *shifted;
  }
  return false;
}

double MetisPaths::hop(const MetisPath& path, int stage, int end) const {
  return stages_.hop(choice(path, stage), path.first[stage], path.size(stage), path.size(stage + 1),
                     end);
}

/// Milliseconds. [Metis, Eq. 1, with the terms of the public code that it does not print: time
/// outside the layers, optimizer, batch generator]
double MetisPaths::cost(const MetisPath& path, const std::vector<int>& cuts) const {
  const auto batches = static_cast<double>(problem_.batches[path.batch]);
  double sum = 0, slowest = 0, hops = 0, sync = 0, reduce = 0, update = 0;
  for (int s = 0; s < path.costed; ++s) {
    const MetisStageChoice& each = choice(path, s);
    const int begin = cuts[s], end = cuts[s + 1];
    const double time = stages_.time(each, begin, end);
    sum += time;
    slowest = std::max(slowest, time);
    if (s + 1 == path.costed) {
      sync = each.sync_ms * batches;
    } else {
      hops += hop(path, s, end);
    }
    reduce =
        std::max(reduce, each.reduce_ms_per_byte * (stages_.parameters(begin, end) / each.tensor));
    const double layers = static_cast<double>(end - begin) / tables_.layers;
    update = std::max(update, tables_.optimizer_ms / each.tensor * layers);
  }
  return (batches - 1) * slowest + sum + sync + update + reduce + hops +
         tables_.batch_generator_ms * batches;
}

/// The plan can be written down and keeps to the job. In fixed mode only empty stages are left.
bool MetisPaths::expressible(const MetisPath& path, const std::vector<int>& cuts) {
  for (int s = 0; s < path.stages(); ++s) {
    if (!settings_.as_published()) {
      if (cuts[s] == cuts[s + 1]) return false;
      continue;
    }
    const MetisStageChoice& each = choice(path, s);
    const auto& allowed = tables_.allowed_tensor;
    const auto samples = std::accumulate(each.samples.begin(), each.samples.end(), std::int64_t{0});
    if (std::find(allowed.begin(), allowed.end(), each.tensor) == allowed.end() ||
        samples != problem_.input.job.global_batch / problem_.batches[path.batch] ||
        *std::max_element(each.samples.begin(), each.samples.end()) >
            problem_.input.job.allowed.max_micro_batch_size) {
      ++progress_.inexpressible;
      return false;
    }
  }
  if (cuts.back() == tables_.layers) return true;
  ++progress_.inexpressible;
  return false;
}

void MetisPaths::offer(const MetisPath& path, const std::vector<int>& cuts) {
  if (expressible(path, cuts)) progress_.offer(cost(path, cuts), [&] { return build(path, cuts); });
}

ir::Plan MetisPaths::build(const MetisPath& path, const std::vector<int>& cuts) const {
  ir::Plan plan;
  plan.schedule = problem_.schedule;
  ir::Pipeline chain;
  chain.micro_batches = static_cast<int>(problem_.batches[path.batch]);
  chain.micro_batch_size =
      static_cast<int>(problem_.input.job.global_batch / problem_.batches[path.batch]);
  for (int s = 0; s < path.stages(); ++s) {
    if (cuts[s] == cuts[s + 1]) continue;  // Published plans may leave devices idle.
    const MetisStageChoice& each = choice(path, s);
    ir::Segment held = stages_.segment(cuts[s], cuts[s + 1]);
    auto next = stages_.placement().devices.begin() + path.first[s];
    for (const int samples : each.samples) {
      ir::Group group;
      group.devices.assign(next, next + each.tensor);
      next += each.tensor;
      group.tensor_parallel = each.tensor;
      group.samples = samples;
      held.groups.push_back(std::move(group));
    }
    chain.stages.push_back({{std::move(held)}});
  }
  plan.pipelines.push_back(std::move(chain));
  return plan;
}

}  // namespace orrery::planners
