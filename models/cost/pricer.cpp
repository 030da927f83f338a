#include "models/cost/pricer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/cost/device_share.h"
#include "models/cost/expert_share.h"
#include "models/cost/host_step.h"
#include "models/cost/kernels.h"
#include "models/cost/scale_profile.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"
#include "models/spec/link_calibration.h"

namespace orrery::models {
namespace {

using ir::Dtype;
using ir::name_of;
using ir::Pass;

/// Of collectives that a job hides, where the profile has no share (Pricer::overlaps).
const std::map<ir::Purpose, double> kExposed = {{ir::Purpose::tensor_parallel, 0.5},
                                                {ir::Purpose::sequence_parallel, 0.05},
                                                {ir::Purpose::expert_parallel, 0},
                                                {ir::Purpose::zero, 0.1}};

void mix(std::size_t& hash, std::int64_t value) {
  hash ^= std::hash<std::int64_t>{}(value) + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
}

/// Linear in log(work) between the points, constant outside.
double efficiency_at(const ir::EfficiencyCurve& curve, Flops work) {
  const auto& points = curve.points;
  if (work <= points.front().work) return points.front().efficiency;
  if (work >= points.back().work) return points.back().efficiency;
  const auto upper =
      std::upper_bound(points.begin(), points.end(), work,
                       [](Flops value, const auto& point) { return value < point.work; });
  const auto lower = upper - 1;
  const double share = std::log(work / lower->work) / std::log(upper->work / lower->work);
  return lower->efficiency + share * (upper->efficiency - lower->efficiency);
}

/// By GPU type; none where the profile has no kernels of it.
std::vector<std::optional<Kernels>> kernels_of(const Cluster& cluster, const ir::Profile& profile) {
  std::vector<std::optional<Kernels>> all;
  for (const GpuType& gpu : cluster.gpu_types) {
    const auto known =
        std::find_if(profile.kernels.begin(), profile.kernels.end(),
                     [&](const ir::KernelModel& model) { return model.gpu == gpu.name; });
    all.emplace_back();
    if (known != profile.kernels.end()) all.back().emplace(*known, gpu.memory_bandwidth);
  }
  return all;
}

ExpertShare share_of(const BlockQuery& query) {
  return {query.expert_parallel, query.experts, query.expert_samples};
}

/// Forward FLOPs for each own sample.
struct BlockWork {
  Flops rest;     ///< Not of experts.
  Flops experts;  ///< With their imbalance, if shares were even.
  double load;    ///< ExpertShare::load.
  Flops all() const { return rest + load * experts; }
  /// Over what the same GPU would compute with an even share.
  double over_even() const { return load == 1 ? 1 : all() / (rest + experts); }
  double of_experts() const { return experts.value > 0 ? load * experts / all() : 0; }
};

/// Without its block.
BlockQuery query_of(int gpu_type, const ir::SegmentInfo& segment, const ir::Op& op) {
  return {.gpu_type = gpu_type,
          .block = {},
          .pass = *ir::traits(op.kind).priced_as,
          .tensor_parallel = segment.tensor_parallel,
          .sequence_degree = segment.sequence_degree,
          .samples = op.samples,
          .recompute = segment.recompute,
          .expert_parallel = segment.expert_parallel,
          .experts = segment.experts,
          .expert_samples = segment.expert_samples,
          .sequence_parallel = segment.sequence != ir::SequenceParallelism::none};
}

/// Of both passes the part that is asked for.
Seconds part_of(Pass pass, Seconds forward, Seconds backward, Seconds backward_weight) {
  switch (pass) {
    case Pass::forward:
      return forward;
    case Pass::backward:
      return backward;
    case Pass::backward_input:
      return backward - backward_weight;
    case Pass::backward_weight:
      return backward_weight;
    case Pass::optimizer:
      break;
  }
  ORRERY_CHECK(false, "no part of a block for {}", name_of(pass));
  return {};
}

BlockParts part_of(const KernelTimes& times, Pass pass) {
  return {part_of(pass, times.forward, times.backward, times.backward_weight),
          part_of(pass, times.experts, times.experts_backward, times.experts_backward_weight)};
}

/// Pipeline, stage, position in the stage.
using GroupPlace = std::array<std::int32_t, 3>;

/// Of the groups that have ranks, sorted: a stage that left all its micro-batches to others has
/// none.
std::vector<GroupPlace> groups_of(const ir::Program& program) {
  std::vector<GroupPlace> groups;
  for (const ir::Rank& rank : program.ranks) {
    const GroupPlace place{rank.pipeline, rank.stage, rank.group};
    if (groups.empty() || groups.back() != place) groups.push_back(place);
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

/// Replicas of a block in the plan, each part of a sequence one, each with its weight over that of
/// `segment`. A group may have several segments with the same block: one for each part of a
/// backward pass, and what another pipeline computes for it.
double replicas_of(const ir::Program& program, BlockId block, const ir::SegmentInfo& segment,
                   const std::vector<GroupPlace>& groups) {
  if (!segment.zero.shards_optimizer()) return 1;
  std::vector<std::pair<GroupPlace, double>> weights;
  for (const ir::SegmentInfo& other : program.segments) {
    if (block < other.first_block || other.last_block < block) continue;
    const GroupPlace place{other.pipeline, other.stage, other.group};
    if (!std::binary_search(groups.begin(), groups.end(), place)) continue;
    weights.emplace_back(place, other.sequence_degree * other.state_weight);
  }
  // A group's own segments come first.
  const auto by_place = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(weights.begin(), weights.end(), by_place);
  double weight = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (i == 0 || by_place(weights[i - 1], weights[i])) weight += weights[i].second;
  }
  return weight / segment.state_weight;
}

/// Segment of each block that an optimizer step updates: the op's own segment or all of its rank.
std::map<BlockId, const ir::SegmentInfo*> updated_blocks(const ir::Program& program,
                                                         const ir::Op& op) {
  const ir::Rank& rank = program.rank_of(op);
  std::map<BlockId, const ir::SegmentInfo*> blocks;
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    const ir::SegmentInfo& segment = program.segments[s];
    const bool chosen = op.segment != ir::kNone
                            ? as_size(op.segment) == s
                            : segment.pipeline == rank.pipeline && segment.stage == rank.stage &&
                                  segment.group == rank.group;
    if (!chosen) continue;
    for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
      blocks.emplace(b, &segment);
    }
  }
  return blocks;
}

}  // namespace

struct Pricer::State {
  struct QueryHash {
    std::size_t operator()(const BlockQuery& query) const {
      std::size_t hash = 0;
      for (const int value :
           {query.gpu_type, query.block.value, static_cast<int>(query.pass), query.tensor_parallel,
            query.sequence_degree, query.samples, static_cast<int>(query.recompute),
            query.expert_parallel, query.experts, query.expert_samples,
            static_cast<int>(query.sequence_parallel)}) {
        mix(hash, value);
      }
      return hash;
    }
  };

  Cluster cluster;
  Workload workload;
  Job job;
  ir::Profile profile;
  std::vector<std::optional<Kernels>> kernels;  ///< By GPU type.
  struct Priced {
    BlockParts time;
    std::vector<const std::string*> lines;  ///< Of `used`.
  };
  mutable std::unordered_map<BlockQuery, Priced, QueryHash> cache;
  mutable std::set<std::string> used;
  mutable std::set<const std::string*> recent;  ///< Of `used`, since take_recent_entries().

  void note(std::string line) const { recent.insert(&*used.insert(std::move(line)).first); }

  const GpuType& gpu(int type) const { return cluster.gpu_types[type]; }

  Dtype dtype_on(const GpuType& gpu) const {
    const std::optional<Dtype> dtype = supported_dtype(gpu, workload.dtype);
    ORRERY_CHECK(dtype.has_value(), "{} computes neither {} nor a substitute", gpu.name,
                 name_of(workload.dtype));
    return *dtype;
  }
  std::string dtype_note(const GpuType& gpu) const {
    const Dtype dtype = dtype_on(gpu);
    if (dtype == workload.dtype) return name_of(dtype);
    return fmt::format("{} in place of {}", name_of(dtype), name_of(workload.dtype));
  }

  std::optional<Seconds> measured(const BlockQuery& query, Pass pass) const;
  std::optional<Seconds> measured_or_combined(const BlockQuery& query) const;
  std::pair<double, std::string> efficiency(const GpuType& gpu, Flops work) const;
  std::optional<KernelTimes> by_kernels(const BlockQuery& query) const;
  Seconds roofline(const BlockQuery& query) const;
  BlockParts price(const BlockQuery& query) const;
  BlockParts cached(const BlockQuery& query) const;
  BlockWork work_of(const BlockQuery& query) const;
  Seconds pass(int gpu_type, const ir::SegmentInfo& segment, const ir::Op& op) const;
  Seconds joint_pass(const ir::Program& program, const ir::Op& op) const;
  template <class Counts>
  double updated_parameters(const ir::Program& program, const ir::Op& op, Counts counts) const;
  Seconds update(int gpu_type, const ir::Program& program, const ir::Op& op) const;
  Seconds host_update(const ir::Program& program, const ir::Op& op, const HostShares& hosts) const;
  Seconds sweep(int gpu_type, double parameters) const;
  Seconds overhead(const GpuType& gpu, Pass pass) const;
  std::optional<Seconds> storage(const ir::Op& op) const;
  std::set<int> types_of(const std::vector<DeviceId>& devices) const;
  double loss(int gpu_type) const;
  IdVector<RankId, double> losses(const ir::Program& program) const;
  double exposed(int gpu_type, ir::Purpose purpose) const;
  std::vector<std::vector<double>> exposed(const ir::Program& program) const;
};

/// The entry with the query's micro-batch size, else the line between its neighbors. Entries of
/// the workload's own model hide those of any model. An optimizer step has no micro-batch.
std::optional<Seconds> Pricer::State::measured(const BlockQuery& query, Pass pass) const {
  if (query.sequence_degree != 1) return std::nullopt;
  const GpuType& type = gpu(query.gpu_type);
  const ir::BlockKind kind = workload.block(query.block).kind;
  const Dtype dtype = dtype_on(type);
  for (const std::string& model : {workload.shape.name, std::string()}) {
    const ir::BlockTime* lower = nullptr;
    const ir::BlockTime* upper = nullptr;
    for (const ir::BlockTime& entry : profile.block_times) {
      if (entry.gpu != type.name || entry.block != kind || entry.model != model ||
          entry.pass != pass || entry.tensor_parallel != query.tensor_parallel ||
          entry.dtype != dtype) {
        continue;
      }
      if (pass == Pass::optimizer) {
        lower = upper = &entry;
        break;
      }
      if (entry.sequence_length != workload.sequence_length) continue;
      const int size = entry.micro_batch_size;
      if (size <= query.samples && (lower == nullptr || size > lower->micro_batch_size)) {
        lower = &entry;
      }
      if (size >= query.samples && (upper == nullptr || size < upper->micro_batch_size)) {
        upper = &entry;
      }
    }
    if (lower == nullptr || upper == nullptr) continue;
    std::string line =
        fmt::format("profile: {} {}{}{} {} tp {} samples {} sequence {} {}", type.name, model,
                    model.empty() ? "" : " ", name_of(kind), name_of(pass), query.tensor_parallel,
                    query.samples, workload.sequence_length, dtype_note(type)) +
        scaled_note(lower->provenance);
    if (lower->micro_batch_size == upper->micro_batch_size) {
      note(std::move(line));
      return lower->time;
    }
    note(fmt::format("{}, linear between samples {} and {}", line, lower->micro_batch_size,
                     upper->micro_batch_size));
    const double share = static_cast<double>(query.samples - lower->micro_batch_size) /
                         (upper->micro_batch_size - lower->micro_batch_size);
    return lower->time + share * (upper->time - lower->time);
  }
  return std::nullopt;
}

std::optional<Seconds> Pricer::State::measured_or_combined(const BlockQuery& query) const {
  if (const auto time = measured(query, query.pass)) return time;
  if (ir::traits(query.pass).is_half()) {
    if (const auto whole = measured(query, Pass::backward)) return *whole / 2;
  }
  if (query.pass != Pass::backward) return std::nullopt;
  bool both = true;
  Seconds sum;
  for (const ir::OpTraits& op : ir::kOpTraits) {
    if (!op.is_half()) continue;
    const std::optional<Seconds> half = measured(query, *op.priced_as);
    both = both && half;
    sum += half.value_or(0_s);
  }
  return both ? std::optional(sum) : std::nullopt;
}

/// Efficiency and where it comes from.
std::pair<double, std::string> Pricer::State::efficiency(const GpuType& gpu, Flops work) const {
  const Dtype dtype = dtype_on(gpu);
  for (const ir::EfficiencyCurve& curve : profile.efficiencies) {
    if (curve.gpu == gpu.name && curve.dtype == dtype && !curve.points.empty()) {
      return {efficiency_at(curve, work), "curve of the profile" + scaled_note(curve.provenance)};
    }
  }
  return {gpu.efficiency, fmt::format("declared {:g}", gpu.efficiency)};
}

/// Both passes of a block by its kernels, if the profile knows those of the GPU type.
std::optional<KernelTimes> Pricer::State::by_kernels(const BlockQuery& query) const {
  const std::optional<Kernels>& known = kernels[static_cast<std::size_t>(query.gpu_type)];
  const ir::BlockKind kind = workload.block(query.block).kind;
  if (!known || kind == ir::BlockKind::convolution) return std::nullopt;
  const GpuType& type = gpu(query.gpu_type);
  const Dtype dtype = dtype_on(type);
  if (!known->computes(dtype)) return std::nullopt;
  const KernelDegrees at{.sequence = workload.sequence_length,
                         .samples = query.samples,
                         .tensor_parallel = query.tensor_parallel,
                         .context_parallel = query.sequence_degree,
                         .expert_parallel = query.expert_parallel,
                         .experts = query.experts,
                         .expert_samples = query.expert_samples,
                         .products = dtype,
                         .causal = workload.shape.causal,
                         .sequence_parallel = query.sequence_parallel,
                         .launch = job.cuda_graphs ? Seconds{} : type.launch};
  const bool ends = kind == ir::BlockKind::embedding || kind == ir::BlockKind::head;
  note(fmt::format("kernels: {} {} {} tp {} samples {} sequence {} {}", type.name, name_of(kind),
                   name_of(query.pass), query.tensor_parallel, query.samples,
                   workload.sequence_length, ends ? "bf16" : dtype_note(type)));
  if (kind == ir::BlockKind::embedding) return known->embedding(workload.shape.hidden, at);
  if (kind == ir::BlockKind::head) {
    const KernelTimes one = known->head(workload.shape.hidden, workload.shape.vocabulary, at);
    KernelTimes all = one;
    for (int further = 0; further < workload.shape.mtp_layers; ++further) all += one;
    return all;
  }
  return known->layer(kernel_layer(workload.shape, workload.block(query.block)), at);
}

BlockWork Pricer::State::work_of(const BlockQuery& query) const {
  const Block& block = workload.block(query.block);
  if (block.kind != ir::BlockKind::moe) return {block.forward_flops, {}, 1};
  return {block.forward_flops - block.expert_flops,
          workload.shape.expert_imbalance * block.expert_flops,
          share_of(query).load(workload.shape.experts, query.samples)};
}

Seconds Pricer::State::roofline(const BlockQuery& query) const {
  const GpuType& type = gpu(query.gpu_type);
  const Block& block = workload.block(query.block);
  const double ranks = static_cast<double>(query.tensor_parallel) * query.sequence_degree;
  const double passes = query.pass == Pass::backward ? 2 : 1;

  Flops work = block.forward_flops;
  if (block.kind == ir::BlockKind::moe) {
    work += (workload.shape.expert_imbalance - 1) * block.expert_flops;
  }
  const double over_even = work_of(query).over_even();
  work = over_even * passes * query.samples / ranks * work;

  // An embedding reads the rows of its tokens only: they are in its memory traffic.
  Bytes moved = over_even * query.samples / ranks * block.memory_traffic;
  if (block.kind != ir::BlockKind::embedding) {
    moved += device_parameters(block, query.tensor_parallel,
                               share_of(query).parts(workload.shape.experts)) *
             ir::size_of(workload.dtype);
  }
  moved = passes * moved;

  const auto [share, origin] = efficiency(type, work);
  note(fmt::format("roofline: {} {} {} {}, efficiency {}, memory {:g}", type.name,
                   name_of(block.kind), name_of(query.pass), dtype_note(type), origin,
                   type.memory_efficiency));
  Flops wide = ir::of_products(workload.dtype) ? work : Flops{};
  if (block.kind == ir::BlockKind::transformer || block.kind == ir::BlockKind::moe) {
    wide = std::min(wide, passes * query.samples / ranks * block.attention_flops);
  }
  const Seconds computing = (work - wide) / (peak_flops(type, workload.dtype) * share) +
                            wide / (peak_flops(type, Dtype::bf16) * share);
  const Seconds moving = moved / (type.memory_bandwidth * type.memory_efficiency);
  return std::max(computing, moving) + type.launch;
}

BlockParts Pricer::State::price(const BlockQuery& query) const {
  const BlockWork work = work_of(query);
  const std::optional<Seconds> profiled = measured_or_combined(query);
  const std::optional<KernelTimes> by_shape = profiled ? std::nullopt : by_kernels(query);
  BlockParts time;
  if (by_shape) {
    time = part_of(*by_shape, query.pass);
  } else {
    time.all = profiled ? work.over_even() * *profiled : roofline(query);
    time.experts = work.of_experts() * time.all;
  }
  if (!ir::traits(query.pass).input_gradients || query.recompute == ir::Recompute::none)
    return time;
  const Block& block = workload.block(query.block);
  if (!is_recomputed(block.kind)) return time;
  BlockQuery forward = query;
  forward.pass = Pass::forward;
  forward.recompute = ir::Recompute::none;
  if (query.recompute == ir::Recompute::full) {
    const BlockParts again = cached(forward);
    return {time.all + again.all, time.experts + again.experts};
  }
  const bool experts = query.recompute == ir::Recompute::experts;
  Seconds again;
  if (by_shape) {
    again = experts ? by_shape->experts : by_shape->attention;
  } else if (experts && work.load != 1) {
    again = cached(forward).experts;
  } else {
    const Flops flops = experts ? block.expert_flops : block.attention_flops;
    if (flops.value <= 0) return time;
    const Flops all = work.load == 1 ? block.forward_flops : work.all();
    again = flops / all * cached(forward).all;
  }
  return {time.all + again, time.experts + (experts ? again : Seconds{})};
}

BlockParts Pricer::State::cached(const BlockQuery& query) const {
  const auto found = cache.find(query);
  if (found != cache.end()) {
    recent.insert(found->second.lines.begin(), found->second.lines.end());
    return found->second.time;
  }
  auto before = std::exchange(recent, {});
  const BlockParts time = price(query);
  cache.emplace(query, Priced{time, {recent.begin(), recent.end()}});
  recent.merge(before);
  return time;
}

Seconds Pricer::State::pass(int gpu_type, const ir::SegmentInfo& segment, const ir::Op& op) const {
  BlockQuery query = query_of(gpu_type, segment, op);
  Seconds time;
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    query.block = b;
    time += cached(query).all;
  }
  return time + overhead(gpu(gpu_type), query.pass);
}

/// Of all members of the op's group: they meet before and after the experts of each block.
Seconds Pricer::State::joint_pass(const ir::Program& program, const ir::Op& op) const {
  std::vector<BlockQuery> queries;
  Seconds once;
  for (const OpId id : program.members_of(program.op_groups[as_size(op.match)])) {
    const ir::Op& member = program.op(id);
    for (const int type : types_of(program.rank_of(member).devices)) {
      queries.push_back(query_of(type, program.segment_of(member), member));
      once = std::max(once, overhead(gpu(type), queries.back().pass));
    }
  }
  Seconds time = once;
  const ir::SegmentInfo& segment = program.segment_of(op);
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    Seconds around, inside;
    for (BlockQuery& query : queries) {
      query.block = b;
      const BlockParts parts = cached(query);
      around = std::max(around, parts.all - parts.experts);
      inside = std::max(inside, parts.experts);
    }
    time += around + inside;
  }
  return time;
}

/// What the profile adds once to each op of the pass.
Seconds Pricer::State::overhead(const GpuType& gpu, Pass pass) const {
  for (const ir::PassOverhead& entry : profile.pass_overheads) {
    if (entry.gpu != gpu.name || entry.pass != pass) continue;
    note(fmt::format("profile: {} {} overhead of each op{}", gpu.name, name_of(pass),
                     scaled_note(entry.provenance)));
    return entry.time;
  }
  return {};
}

std::optional<Seconds> Pricer::State::storage(const ir::Op& op) const {
  const bool write = op.kind == ir::OpKind::save_state;
  if (!write && op.kind != ir::OpKind::load_state) return std::nullopt;
  if (op.location == ir::Location::peer) return std::nullopt;  // flows
  for (const ir::StorageTime& entry : profile.storage) {
    if (entry.location != name_of(op.location) || entry.write != write) continue;
    note(fmt::format("profile: {} {}", write ? "writing to" : "reading from", entry.location));
    return entry.latency + op.bytes / entry.bandwidth;
  }
  return std::nullopt;
}

/// Elements that an optimizer step updates on one device, of the blocks that `counts`(block, its
/// segment, shards of its states) says yes to. What both ends of a segment share counts once.
template <class Counts>
double Pricer::State::updated_parameters(const ir::Program& program, const ir::Op& op,
                                         Counts counts) const {
  std::vector<GroupPlace> groups;  // Once they are needed.
  double parameters = 0;
  bool first = false;  // The first block counts.
  for (const auto& [block, segment] : updated_blocks(program, op)) {
    if (groups.empty() && segment->zero.shards_optimizer()) groups = groups_of(program);
    const double replicas = replicas_of(program, block, *segment, groups);
    const double shards = shard_count(segment->zero, replicas);
    if (!counts(block, *segment, shards)) continue;
    parameters += sharded_parameters(workload.block(block), segment->tensor_parallel,
                                     expert_share(*segment).parts(workload.shape.experts),
                                     segment->zero, replicas);
    if (block.value == 0) first = true;
    if (first && block == segment->last_block) {
      parameters -=
          tied_parameters(workload, segment->first_block, block, segment->tensor_parallel) / shards;
    }
  }
  return parameters;
}

/// Blocks with a measured optimizer take their time, the others are one memory-bound sweep.
Seconds Pricer::State::update(int gpu_type, const ir::Program& program, const ir::Op& op) const {
  const double on_device = 1 - program.header.optimizer_offload;
  Seconds time;
  const auto is_swept = [&](BlockId block, const ir::SegmentInfo& segment, double shards) {
    BlockQuery query;
    query.gpu_type = gpu_type;
    query.block = block;
    query.tensor_parallel = segment.tensor_parallel;
    const auto profiled = measured(query, Pass::optimizer);
    if (profiled) time += on_device * *profiled / shards;
    return !profiled;
  };
  const double parameters = on_device * updated_parameters(program, op, is_swept);
  if (parameters > 0) time += sweep(gpu_type, parameters);
  return time + overhead(gpu(gpu_type), Pass::optimizer);
}

/// The part of an optimizer step that the CPU computes, of the rank's slowest device.
Seconds Pricer::State::host_update(const ir::Program& program, const ir::Op& op,
                                   const HostShares& hosts) const {
  const double parameters =
      program.header.optimizer_offload *
      updated_parameters(program, op, [](BlockId, const ir::SegmentInfo&, double) { return true; });
  Seconds slowest;
  for (const DeviceId device : program.rank_of(op).devices) {
    slowest = std::max(slowest, host_step(hosts.of(device), parameters, job.state_bytes));
  }
  note("host: optimizer step over PCIe and the host memory's bandwidth, of the cluster file");
  return slowest;
}

/// One pass of the optimizer over `parameters` elements.
Seconds Pricer::State::sweep(int gpu_type, double parameters) const {
  const GpuType& type = gpu(gpu_type);
  const Dtype dtype = dtype_on(type);
  for (const ir::OptimizerTime& entry : profile.optimizers) {
    if (entry.gpu != type.name || entry.dtype != dtype) continue;
    note(fmt::format("profile: {} optimizer step {}{}", type.name, dtype_note(type),
                     scaled_note(entry.provenance)));
    return entry.fixed + parameters * entry.per_parameter;
  }
  if (const auto& known = kernels[static_cast<std::size_t>(gpu_type)]) {
    note(fmt::format("kernels: {} optimizer step", type.name));
    return known->optimizer(parameters, job.state_bytes);
  }
  const StateBytes& bytes = job.state_bytes;
  const Bytes moved{parameters *
                    (bytes.gradient + bytes.weight + 2 * bytes.master + 2 * bytes.moments)};
  return moved / (type.memory_bandwidth * type.memory_efficiency) + type.launch;
}

IdVector<RankId, double> Pricer::State::losses(const ir::Program& program) const {
  if (profile.overlap_losses.empty() || program.collectives.empty()) return {};
  std::map<int, double> of_type;
  IdVector<RankId, double> losses;
  for (const ir::Rank& rank : program.ranks) {
    double most = 0;
    for (const DeviceId device : rank.devices) {
      const int type = cluster.device(device).gpu_type;
      const auto [known, fresh] = of_type.try_emplace(type);
      if (fresh) known->second = loss(type);
      most = std::max(most, known->second);
    }
    losses.push_back(most);
  }
  return losses;
}

double Pricer::State::loss(int gpu_type) const {
  for (const ir::OverlapLoss& entry : profile.overlap_losses) {
    if (entry.gpu != gpu(gpu_type).name) continue;
    note(fmt::format("profile: {} at {:.1f} % less speed beside collectives{}", entry.gpu,
                     100 * entry.share, scaled_note(entry.provenance)));
    return entry.share;
  }
  return 0;
}

std::vector<std::vector<double>> Pricer::State::exposed(const ir::Program& program) const {
  if (job.hidden_collectives.empty()) return {};
  std::vector<std::vector<double>> shares;
  for (const std::vector<ir::InnerCollective>& set : program.inner_sets) {
    std::vector<double>& own = shares.emplace_back();
    for (const ir::InnerCollective& inner : set) {
      const bool hides = std::find(job.hidden_collectives.begin(), job.hidden_collectives.end(),
                                   inner.purpose) != job.hidden_collectives.end();
      own.push_back(hides ? 0.0 : 1.0);
      for (std::size_t i = 0; hides && i < inner.groups.size(); ++i) {
        for (const int type : types_of(program.group(inner.groups[i]).devices)) {
          own.back() = std::max(own.back(), exposed(type, inner.purpose));
        }
      }
    }
  }
  return shares;
}

double Pricer::State::exposed(int gpu_type, ir::Purpose purpose) const {
  for (const ir::ExposedCollectives& entry : profile.exposed_collectives) {
    if (entry.gpu != gpu(gpu_type).name || entry.purpose != purpose) continue;
    note(fmt::format("profile: {} {:.0f} % of {} collectives exposed{}", entry.gpu,
                     100 * entry.share, name_of(purpose), scaled_note(entry.provenance)));
    return entry.share;
  }
  const double share = kExposed.at(purpose);
  note(fmt::format("declared: {} {:.0f} % of {} collectives exposed", gpu(gpu_type).name,
                   100 * share, name_of(purpose)));
  return share;
}

std::set<int> Pricer::State::types_of(const std::vector<DeviceId>& devices) const {
  std::set<int> types;
  for (const DeviceId device : devices) types.insert(cluster.device(device).gpu_type);
  return types;
}

Pricer::Pricer(const Cluster& cluster, const Workload& workload, const Job& job,
               const ir::Profile& profile)
    : state_(new State{cluster, workload, job, profile, kernels_of(cluster, profile), {}, {}, {}}) {
}
Pricer::~Pricer() = default;
Pricer::Pricer(Pricer&&) noexcept = default;

BlockParts Pricer::block_parts(const BlockQuery& query) const {
  ORRERY_CHECK(query.pass != Pass::optimizer, "block {}: optimizer() prices optimizer steps",
               query.block.value);
  return state_->cached(query);
}

Seconds Pricer::optimizer(int gpu_type, double parameters) const {
  return state_->sweep(gpu_type, parameters);
}

Seconds Pricer::compute(const ir::Program& program, const ir::Op& op) const {
  const bool alone = op.kind == ir::OpKind::optimizer_step;
  const auto hosts = alone ? host_shares(program, state_->cluster) : std::nullopt;
  return compute(program, op, hosts ? &*hosts : nullptr);
}

Seconds Pricer::compute(const ir::Program& program, const ir::Op& op,
                        const HostShares* hosts) const {
  if (!ir::is_compute(op.kind)) return {};
  if (op.match != ir::kNone && !expert_share(program.segment_of(op)).even()) {
    return state_->joint_pass(program, op);
  }
  const ir::Rank& rank = program.rank_of(op);
  std::set<int> types = state_->types_of(rank.devices);
  types.insert(state_->cluster.device(rank.device).gpu_type);
  Seconds slowest;
  for (const int type : types) {
    const bool optimizer_step = op.kind == ir::OpKind::optimizer_step;
    slowest = std::max(slowest, optimizer_step ? state_->update(type, program, op)
                                               : state_->pass(type, program.segment_of(op), op));
  }
  if (hosts != nullptr && op.kind == ir::OpKind::optimizer_step) {
    slowest = std::max(slowest, state_->host_update(program, op, *hosts));
  }
  return slowest;
}

std::optional<Seconds> Pricer::storage(const ir::Op& op) const { return state_->storage(op); }

Overlaps Pricer::overlaps(const ir::Program& program) const {
  return {state_->losses(program), state_->exposed(program)};
}

std::vector<std::string> Pricer::used_entries() const {
  std::set<std::string> all = state_->used;
  for (std::string& line : describe_calibrations(state_->cluster, state_->profile)) {
    all.insert(std::move(line));
  }
  return {all.begin(), all.end()};
}

std::vector<std::string> Pricer::take_recent_entries() const {
  std::vector<std::string> lines;
  for (const std::string* line : std::exchange(state_->recent, {})) lines.push_back(*line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

const Cluster& Pricer::cluster() const { return state_->cluster; }
const Workload& Pricer::workload() const { return state_->workload; }
const Job& Pricer::job() const { return state_->job; }

}  // namespace orrery::models
