#include "planners/kit/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "models/base/ids.h"
#include "models/cost/collective.h"
#include "models/cost/device_share.h"
#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

/// Distances between settings that differ by less count as equal.
constexpr double kSameDistance = 1e-9;

double distance(int forced, int legal) {
  return forced > 0 ? std::abs(std::log2(static_cast<double>(legal) / forced)) : 0;
}

std::string name_of(int data_parallel, int sequence_degree, int micro_batch_size) {
  return fmt::format("DP{}{}, micro-batch {}", data_parallel,
                     sequence_degree > 1 ? fmt::format(" SP{}", sequence_degree) : "",
                     micro_batch_size);
}

}  // namespace

DataParallel::DataParallel(const PlannerInput& input, bool ulysses)
    : input_(input), ulysses_(ulysses), costs_(input), layers_(count_layers(input.workload)) {}

std::vector<DeviceId> DataParallel::devices(int data_parallel, int sequence_degree) const {
  std::map<NodeId, std::vector<DeviceId>> by_node;
  for (const DeviceId id : input_.devices) by_node[input_.cluster.device(id).node].push_back(id);
  std::vector<std::vector<DeviceId>> nodes;
  for (auto& [node, members] : by_node) nodes.push_back(std::move(members));
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const std::size_t wanted = as_size(data_parallel) * as_size(sequence_degree);
  std::vector<DeviceId> result;
  for (const auto& node : nodes) {
    const std::size_t whole = node.size() - node.size() % sequence_degree;
    result.insert(result.end(), node.begin(), node.begin() + static_cast<std::ptrdiff_t>(whole));
  }
  if (result.size() < wanted) {  // Groups reach over nodes.
    result.clear();
    for (const auto& node : nodes) result.insert(result.end(), node.begin(), node.end());
  }
  result.resize(std::min(result.size(), wanted));
  return result;
}

std::optional<std::string> DataParallel::why_not(int data_parallel, int sequence_degree,
                                                 int micro_batch_size) const {
  const models::Allowed& allowed = input_.job.allowed;
  const std::int64_t ranks = std::int64_t{data_parallel} * sequence_degree;
  if (sequence_degree > 1) {
    if (!ulysses_) return fmt::format("a sequence degree of {} without Ulysses", sequence_degree);
    if (!allowed.sequence_parallel) return "the job does not allow sequence parallelism";
    if (input_.workload.shape.heads % sequence_degree != 0) {
      return fmt::format("SP {} does not divide {} heads", sequence_degree,
                         input_.workload.shape.heads);
    }
    if (input_.workload.sequence_length % sequence_degree != 0) {
      return fmt::format("SP {} does not divide {} tokens", sequence_degree,
                         input_.workload.sequence_length);
    }
  }
  if (ranks > std::ssize(input_.devices)) {
    return fmt::format("DP {} x SP {} needs {} devices, there are {}", data_parallel,
                       sequence_degree, ranks, input_.devices.size());
  }
  if (micro_batch_size > allowed.max_micro_batch_size) {
    return fmt::format("micro-batches of {}, the job allows {}", micro_batch_size,
                       allowed.max_micro_batch_size);
  }
  if (input_.job.global_batch % (std::int64_t{data_parallel} * micro_batch_size) != 0 ||
      input_.job.global_batch < 1) {
    return fmt::format("DP {} x micro-batch {} does not divide a batch of {}", data_parallel,
                       micro_batch_size, input_.job.global_batch);
  }
  if (input_.job.global_batch > std::numeric_limits<int>::max()) {
    return fmt::format("a batch of {} samples", input_.job.global_batch);
  }
  if (!one_vendor_per_group(devices(data_parallel, sequence_degree), sequence_degree,
                            input_.cluster)) {
    return fmt::format("SP {} would join GPUs of two vendors", sequence_degree);
  }
  return std::nullopt;
}

std::vector<DataParallelSetting> DataParallel::legal(bool idle, const ForcedDegrees& forced) const {
  std::vector<DataParallelSetting> result;
  const int count = static_cast<int>(input_.devices.size());
  const int limit = std::min<int>(
      count, static_cast<int>(std::min<std::int64_t>(input_.job.global_batch, 1 << 30)));
  const int most_sequence = ulysses_ && input_.job.allowed.sequence_parallel ? count : 1;
  for (int sequence = 1; sequence <= most_sequence; ++sequence) {
    if (forced.sequence_degree > 0 && sequence != forced.sequence_degree) continue;
    if (input_.workload.shape.heads % sequence != 0) continue;
    for (int data = 1; data <= std::min(limit, count / sequence); ++data) {
      if (forced.data_parallel > 0 && data != forced.data_parallel) continue;
      if (!idle && data * sequence != count) continue;
      if (input_.job.global_batch % data != 0) continue;
      for (int size = 1; size <= input_.job.allowed.max_micro_batch_size; ++size) {
        if (size > input_.job.global_batch / data) break;
        if (forced.micro_batch_size > 0 && size != forced.micro_batch_size) continue;
        if (why_not(data, sequence, size)) continue;
        DataParallelSetting setting;
        setting.data_parallel = data;
        setting.sequence_degree = sequence;
        setting.micro_batch_size = size;
        result.push_back(setting);
      }
    }
  }
  return result;
}

models::Infeasible DataParallel::not_expressible(const ForcedDegrees& forced) const {
  const int sequence = std::max(1, forced.sequence_degree);
  const int size = std::max(1, forced.micro_batch_size);
  const int data = forced.data_parallel > 0
                       ? forced.data_parallel
                       : std::max(1, static_cast<int>(input_.devices.size()) / sequence);
  const std::optional<std::string> why = why_not(data, sequence, size);
  std::string text = fmt::format("{}: {}", name_of(data, sequence, size),
                                 why ? *why : "no legal setting of the other degrees goes with it");
  const DataParallelSetting* nearest = nullptr;
  double nearest_distance = 0;
  const std::vector<DataParallelSetting> all = legal(true, {});
  for (const DataParallelSetting& s : all) {
    const double apart = distance(forced.data_parallel, s.data_parallel) +
                         distance(forced.sequence_degree, s.sequence_degree) +
                         distance(forced.micro_batch_size, s.micro_batch_size);
    const double gain = nearest == nullptr ? 1 : nearest_distance - apart;
    if (gain < -kSameDistance) continue;
    if (gain <= kSameDistance &&
        s.data_parallel * s.sequence_degree <= nearest->data_parallel * nearest->sequence_degree) {
      continue;
    }
    nearest = &s;
    nearest_distance = apart;
  }
  text += nearest == nullptr ? "; nothing else is legal either"
                             : fmt::format("; nearest legal: {} on {} of {} devices",
                                           name_of(nearest->data_parallel, nearest->sequence_degree,
                                                   nearest->micro_batch_size),
                                           nearest->data_parallel * nearest->sequence_degree,
                                           input_.devices.size());
  return {"not expressible", text};
}

int DataParallel::node_shard_group(const DataParallelSetting& setting) const {
  std::map<NodeId, int> in_node;
  for (const DeviceId id : devices(setting.data_parallel, setting.sequence_degree)) {
    ++in_node[input_.cluster.device(id).node];
  }
  const int size = in_node.begin()->second;
  for (const auto& [node, count] : in_node) {
    if (count != size) return 0;
  }
  return size;
}

Seconds DataParallel::passes(const DataParallelSetting& s,
                             const std::vector<DeviceId>& devices) const {
  StageShape shape;
  shape.layers = layers_;
  shape.samples = s.micro_batch_size;
  shape.sequence_degree = s.sequence_degree;
  if (s.sequence_degree > 1) shape.sequence = ir::SequenceParallelism::ulysses;
  shape.recompute = s.recompute;
  std::set<int> types;
  for (const DeviceId id : devices) types.insert(input_.cluster.device(id).gpu_type);
  Seconds slowest;
  for (const int type : types) slowest = std::max(slowest, costs_.compute(type, shape).both());
  return slowest;
}

/// Four a layer and direction: Q and output, K and V, which are smaller with grouped heads. The
/// repeated forward pass has its own. [Jacobs et al. 2023, 3.1]
Seconds DataParallel::all_to_alls(const DataParallelSetting& s,
                                  const std::vector<DeviceId>& devices) const {
  if (s.sequence_degree == 1) return {};
  const ir::ModelShape& model = input_.workload.shape;
  const double kv = model.heads > 0 ? static_cast<double>(model.kv_heads) / model.heads : 1.0;
  const models::PathFunction path = [&](DeviceId a, DeviceId b) { return costs_.path(a, b); };
  Seconds slowest;
  const std::size_t degree = s.sequence_degree;
  for (std::size_t i = 0; i < devices.size(); i += degree) {
    const std::span<const DeviceId> group(devices.data() + i, degree);
    const auto both = [&](Bytes of_sample) {
      const Bytes bytes = static_cast<double>(s.micro_batch_size) * of_sample;
      const auto exchange = [&](Bytes size) {
        return models::collective_time(ir::CollectiveKind::all_to_all,
                                       models::CollectiveAlgorithm::ring, group, size, path);
      };
      return 2.0 * exchange(bytes) + 2.0 * exchange(kv * bytes);
    };
    Seconds sum;
    std::map<double, Seconds> known;  // By bytes.
    for (const BlockId b :
         ids_from_to(input_.workload.first_layer(), input_.workload.last_layer())) {
      const models::Block& block = input_.workload.block(b);
      if (block.kind != ir::BlockKind::transformer && block.kind != ir::BlockKind::moe) continue;
      const bool again = s.recompute == ir::Recompute::full && models::is_recomputed(block.kind);
      for (const Bytes of_sample : {block.output_bytes, block.input_bytes}) {
        const auto [place, added] = known.try_emplace(of_sample.value);
        if (added) place->second = both(of_sample);
      }
      sum += (again ? 2.0 : 1.0) * known[block.output_bytes.value] + known[block.input_bytes.value];
    }
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

Seconds DataParallel::inside(const std::vector<DeviceId>& devices, int size, Bytes bytes) const {
  Seconds slowest;
  const std::size_t step = size;
  for (std::size_t i = 0; i + step <= devices.size(); i += step) {
    slowest = std::max(
        slowest, costs_.all_reduce(std::span<const DeviceId>(devices.data() + i, step), bytes));
  }
  return slowest;
}

/// All-gathers of the weights before each forward and backward pass (and repeated forward) of a
/// block: half of an all-reduce each. [Rajbhandari et al. 2020, 7.2.2]
Seconds DataParallel::gathers(const DataParallelSetting& s,
                              const std::vector<DeviceId>& devices) const {
  if (s.zero < 3) return {};
  const int ranks = static_cast<int>(devices.size());
  const int shards = s.shard_group > 0 ? std::min(s.shard_group, ranks) : ranks;
  std::map<double, Seconds> known;  // By bytes.
  Seconds sum;
  for (const models::Block& block : input_.workload.blocks) {
    const Bytes bytes{static_cast<double>(models::parameters(block)) *
                      input_.job.state_bytes.weight};
    const bool again = s.recompute == ir::Recompute::full && models::is_recomputed(block.kind);
    const auto [place, added] = known.try_emplace(bytes.value);
    if (added) place->second = 0.5 * inside(devices, shards, bytes);
    sum += (again ? 3.0 : 2.0) * place->second;
  }
  return sum;
}

Seconds DataParallel::synchronization(const DataParallelSetting& s,
                                      const std::vector<DeviceId>& devices) const {
  const int ranks = static_cast<int>(devices.size());
  const Bytes gradient = costs_.gradients(0, layers_);
  const int shards = s.zero == 0 ? 1 : s.shard_group > 0 ? std::min(s.shard_group, ranks) : ranks;
  if (shards == 1) return costs_.all_reduce(devices, gradient);
  Seconds time = 0.5 * inside(devices, shards, gradient);  // Reduce-scatter.
  if (s.zero < 3) {
    const double ratio = input_.job.state_bytes.gradient > 0
                             ? input_.job.state_bytes.weight / input_.job.state_bytes.gradient
                             : 1.0;
    time += 0.5 * inside(devices, shards, ratio * gradient);
  }
  if (shards < ranks) {  // Equal shards of all groups.
    std::vector<DeviceId> peers;
    for (int i = 0; i < ranks; i += shards) peers.push_back(devices[i]);
    time += costs_.all_reduce(peers, gradient / static_cast<double>(shards));
  }
  return time;
}

Seconds DataParallel::estimate(const DataParallelSetting& s) const {
  const std::vector<DeviceId> all = devices(s.data_parallel, s.sequence_degree);
  const double steps = static_cast<double>(input_.job.global_batch) /
                       (static_cast<double>(s.data_parallel) * s.micro_batch_size);
  StageShape shape;
  shape.layers = layers_;
  shape.zero_stage = s.zero;
  shape.replicas = s.shard_group > 0 ? s.shard_group : static_cast<int>(all.size());
  Seconds update;
  for (const DeviceId id : all) {
    update = std::max(update, costs_.optimizer(input_.cluster.device(id).gpu_type, shape));
  }
  return steps * (passes(s, all) + all_to_alls(s, all) + gathers(s, all)) +
         synchronization(s, all) + update;
}

ir::Plan DataParallel::build(const DataParallelSetting& s) const {
  const std::vector<DeviceId> all = devices(s.data_parallel, s.sequence_degree);
  const auto ulysses =
      s.sequence_degree > 1 ? ir::SequenceParallelism::ulysses : ir::SequenceParallelism::none;
  ir::Plan plan;
  const std::vector<ir::ScheduleKind> schedules =
      models::plain_schedules(input_.job.allowed.schedules);
  if (!schedules.empty()) plan.schedule = schedules.front();  // One stage: all are the same.
  for (ir::Group& group : tensor_groups(all, s.sequence_degree, s.micro_batch_size, ulysses)) {
    group.tensor_parallel = 1;
    group.sequence_degree = s.sequence_degree;
    ir::Pipeline& pipeline = plan.pipelines.emplace_back();
    pipeline.micro_batch_size = s.micro_batch_size;
    pipeline.micro_batches = static_cast<int>(input_.job.global_batch /
                                              (std::int64_t{s.data_parallel} * s.micro_batch_size));
    pipeline.stages = {
        stage_of_layers(input_.workload, 0, layers_, {std::move(group)}, s.recompute, s.zero)};
    pipeline.stages.front().segments.front().zero.shard_group = s.shard_group;
  }
  return plan;
}

std::string DataParallel::describe(const DataParallelSetting& s) const {
  return fmt::format("{}, {} recompute, ZeRO-{}{}",
                     name_of(s.data_parallel, s.sequence_degree, s.micro_batch_size),
                     recompute_in_words(s.recompute), s.zero,
                     s.shard_group > 0 ? fmt::format(" in groups of {}", s.shard_group) : "");
}

}  // namespace orrery::planners
