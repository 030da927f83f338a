#include "planners/exhaustive/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "models/cost/collective.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners::exhaustive {
namespace {

using ir::CollectiveKind;
using models::CollectiveAlgorithm;

/// Two sizes that fix a straight line.
constexpr Bytes kSmall{1e6};
constexpr Bytes kLarge{1e9};

/// First devices of the classes of a group.
std::vector<DeviceId> first_devices(const Space& space, const GroupKind& group) {
  std::vector<std::size_t> used(space.classes.size(), 0);
  std::vector<DeviceId> result;
  for (const int c : group) {
    const auto index = static_cast<std::size_t>(c);
    result.push_back(space.classes[index].devices[used[index]++]);
  }
  return result;
}

/// A device of the class that is not in the group; invalid if there is none.
DeviceId device_outside(const Space& space, int device_class, const GroupKind& group) {
  const auto taken = static_cast<std::size_t>(std::count(group.begin(), group.end(), device_class));
  const auto& devices = space.classes[static_cast<std::size_t>(device_class)].devices;
  return taken < devices.size() ? devices[taken] : DeviceId{};
}

/// Time of one transfer from a device to a group.
Seconds hop_time(const PlannerInput& input, DeviceId sender, const std::vector<DeviceId>& group,
                 Bytes bytes, ir::ActivationTransfer transfer) {
  const models::PathFunction path = [&](DeviceId a, DeviceId b) {
    return input.topology.path(a, b);
  };
  const bool sliced = transfer == ir::ActivationTransfer::sliced;
  const double parts = sliced ? static_cast<double>(group.size()) : 1;
  return models::collective_time(sliced ? CollectiveKind::all_gather : CollectiveKind::broadcast,
                                 CollectiveAlgorithm::ring, group, bytes, path) +
         models::point_to_point_time(sender, group.front(), bytes / parts, path);
}

bool as_good(const StageChoice& a, const StageChoice& b) {
  return a.forward <= b.forward && a.backward <= b.backward && a.hop_in <= b.hop_in;
}

/// False if one of the choices is as good; else drops those that are no better than `more`.
bool wanted(std::vector<StageChoice>& choices, const StageChoice& more) {
  for (const StageChoice& other : choices) {
    if (as_good(other, more)) return false;
  }
  std::erase_if(choices, [&](const StageChoice& other) { return as_good(more, other); });
  return true;
}

}  // namespace

std::size_t ExhaustiveCosts::KeyHash::operator()(const std::vector<int>& key) const {
  std::size_t hash = 1469598103934665603U;
  for (const int value : key) {
    hash ^= static_cast<std::size_t>(static_cast<unsigned>(value));
    hash *= 1099511628211U;
  }
  return hash;
}

ExhaustiveCosts::ExhaustiveCosts(const PlannerInput& input, const Space& space,
                                 const CommonChoice& common)
    : input_(input),
      space_(space),
      common_(common),
      path_([&topology = input.topology](DeviceId a, DeviceId b) { return topology.path(a, b); }),
      pricer_(input.cluster, input.workload, input.job, input.profile),
      recomputes_(input.job.allowed.recompute) {
  std::sort(recomputes_.begin(), recomputes_.end());
  recomputes_.erase(std::unique(recomputes_.begin(), recomputes_.end()), recomputes_.end());
  for (const models::GpuType& type : input.cluster.gpu_types) {
    capacity_.push_back(models::largest_peak(input.profile, type));
  }
  make_rates();
}

std::vector<DeviceId> ExhaustiveCosts::devices(int kind) const {
  return first_devices(space_, group(kind));
}

const models::GpuType& ExhaustiveCosts::gpu(int device_class) const {
  return input_.cluster.gpu_types[static_cast<std::size_t>(gpu_type(device_class))];
}

int ExhaustiveCosts::gpu_type(int device_class) const {
  const DeviceId device = space_.classes[static_cast<std::size_t>(device_class)].devices.front();
  return input_.cluster.device(device).gpu_type;
}

ir::Group ExhaustiveCosts::group_of(int kind, int samples) const {
  return tensor_group(input_, {}, static_cast<int>(group(kind).size()), samples);
}

ir::Segment ExhaustiveCosts::segment(const StagePlace& place, ir::Recompute recompute) const {
  ir::Segment segment;
  segment.first_block = BlockId{place.first};
  segment.last_block = BlockId{place.first + place.blocks - 1};
  segment.recompute = recompute;
  segment.zero.stage = common_.zero;
  return segment;
}

const std::vector<ExhaustiveCosts::Passes>& ExhaustiveCosts::computed(int type, int degree,
                                                                      int samples,
                                                                      ir::Recompute recompute) {
  std::vector<Passes>& sums = computed_[{type, degree, samples, static_cast<int>(recompute)}];
  if (!sums.empty()) return sums;
  sums.emplace_back();
  models::BlockQuery query;
  query.gpu_type = type;
  query.tensor_parallel = degree;
  query.samples = samples;
  query.recompute = recompute;
  for (int b = 0; b < input_.workload.size(); ++b) {
    query.block = BlockId{b};
    query.pass = ir::Pass::forward;
    const double forward = sums.back().forward + pricer_.block(query).value;
    query.pass = ir::Pass::backward;
    sums.push_back({forward, sums.back().backward + pricer_.block(query).value});
  }
  return sums;
}

const std::vector<ExhaustiveCosts::Passes>& ExhaustiveCosts::reduced(int kind, int samples,
                                                                     ir::Recompute recompute) {
  std::vector<Passes>& sums = reduced_[{kind, samples, static_cast<int>(recompute)}];
  if (!sums.empty()) return sums;
  sums.emplace_back();
  const std::vector<DeviceId> members = devices(kind);
  for (const models::Block& block : input_.workload.blocks) {
    const double time =
        block.tensor_collectives * models::collective_time(CollectiveKind::all_reduce,
                                                           CollectiveAlgorithm::ring, members,
                                                           samples * block.output_bytes, path_)
                                       .value;
    const bool again = recompute == ir::Recompute::full && models::is_recomputed(block.kind);
    sums.push_back({sums.back().forward + time, sums.back().backward + (again ? 2 : 1) * time});
  }
  return sums;
}

const ExhaustiveCosts::Passes& ExhaustiveCosts::passes(int kind, const StagePlace& place,
                                                       int samples, ir::Recompute recompute) {
  const auto [found, added] =
      passes_.try_emplace({kind, place.first, place.blocks, samples, static_cast<int>(recompute)});
  Passes& slowest = found->second;
  if (!added) return slowest;
  const auto first = static_cast<std::size_t>(place.first);
  const auto end = first + static_cast<std::size_t>(place.blocks);
  const int degree = static_cast<int>(group(kind).size());
  for (const int c : group(kind)) {
    const std::vector<Passes>& sums = computed(gpu_type(c), degree, samples, recompute);
    slowest.forward = std::max(slowest.forward, sums[end].forward - sums[first].forward);
    slowest.backward = std::max(slowest.backward, sums[end].backward - sums[first].backward);
  }
  if (degree > 1) {
    const std::vector<Passes>& sums = reduced(kind, samples, recompute);
    slowest.forward += sums[end].forward - sums[first].forward;
    slowest.backward += sums[end].backward - sums[first].backward;
  }
  return slowest;
}

const ExhaustiveCosts::Held& ExhaustiveCosts::held(int kind, const StagePlace& place, int samples,
                                                   ir::Recompute recompute,
                                                   const Replicas& replicas) {
  std::vector<int> key{static_cast<int>(group(kind).size()), place.first, place.blocks, samples,
                       static_cast<int>(recompute)};
  const auto begin = replicas.begin() + (replicas.empty() ? 0 : place.first);
  const auto end = begin + (replicas.empty() ? 0 : place.blocks);
  key.insert(key.end(), begin, end);
  const auto [found, added] = held_.try_emplace(std::move(key));
  if (!added) return found->second;
  const ir::Segment whole = segment(place, recompute);
  const ir::Group one = group_of(kind, samples);
  const models::SegmentMemory total = models::segment_memory(
      whole, one, [&](BlockId b) { return replicas.empty() ? 1 : replicas[b.index()]; },
      input_.workload, input_.job);
  found->second = {total.fixed(), total.activations_per_micro_batch};
  return found->second;
}

bool ExhaustiveCosts::fits(int kind, Bytes need) const {
  return std::all_of(group(kind).begin(), group(kind).end(), [&](int c) {
    return need <= capacity_[static_cast<std::size_t>(gpu_type(c))];
  });
}

const ExhaustiveCosts::Affine& ExhaustiveCosts::way(int sender, int kind) {
  const auto [place, added] = ways_.try_emplace({sender, kind});
  if (added) {
    const DeviceId from = device_outside(space_, sender, group(kind));
    const auto time = [&](Bytes bytes) {
      return hop_time(input_, from, devices(kind), bytes, common_.transfer).value;
    };
    const double slope = (time(kLarge) - time(kSmall)) / (kLarge - kSmall).value;
    place->second = {time(kSmall) - slope * kSmall.value, slope};
  }
  return place->second;
}

double ExhaustiveCosts::hop(const StagePlace& place, int kind, int samples) {
  if (place.sender < 0) return 0;
  const BlockId last{place.first - 1};
  return way(place.sender, kind).at(samples * input_.workload.block(last).output_bytes.value);
}

std::vector<std::vector<StageChoice>> ExhaustiveCosts::divide(const StagePlace& place,
                                                              ir::Recompute recompute,
                                                              const Replicas& replicas) {
  const auto most = static_cast<std::size_t>(
      std::min<std::int64_t>(input_.job.allowed.max_micro_batch_size, input_.job.global_batch));
  const auto batch = static_cast<std::size_t>(input_.job.global_batch);
  std::vector<std::vector<StageChoice>> before(1);
  before.front().resize(1);
  before.front().front().recompute = recompute;
  for (const int kind : space_.stages[static_cast<std::size_t>(place.stage)]) {
    std::vector<std::vector<StageChoice>> with(std::min(batch, before.size() - 1 + most) + 1);
    for (std::size_t own = 1; own <= most; ++own) {
      const int samples = static_cast<int>(own);
      const Held& memory = held(kind, place, samples, recompute, replicas);
      if (!fits(kind, memory.fixed + place.in_flight * memory.per_in_flight)) {
        ++refused_;
        continue;
      }
      const Passes& time = passes(kind, place, samples, recompute);
      const double from_before = hop(place, kind, samples);
      for (std::size_t n = 0; n < before.size() && n + own < with.size(); ++n) {
        for (const StageChoice& others : before[n]) {
          StageChoice choice;
          choice.forward = std::max(others.forward, time.forward);
          choice.backward = std::max(others.backward, time.backward);
          choice.hop_in = std::max(others.hop_in, from_before);
          choice.recompute = recompute;
          if (!wanted(with[n + own], choice)) continue;
          choice.samples.reserve(others.samples.size() + 1);
          choice.samples = others.samples;
          choice.samples.push_back(samples);
          with[n + own].push_back(std::move(choice));
        }
      }
    }
    before = std::move(with);
  }
  return before;
}

const std::vector<std::vector<StageChoice>>& ExhaustiveCosts::choices(const StagePlace& place,
                                                                      const Replicas& replicas) {
  std::vector<int> key{place.stage, place.sender, place.first, place.blocks, place.in_flight};
  if (!replicas.empty()) {
    key.insert(key.end(), replicas.begin() + place.first,
               replicas.begin() + place.first + place.blocks);
  }
  const auto [found, added] = choices_.try_emplace(std::move(key));
  std::vector<std::vector<StageChoice>>& result = found->second;
  if (!added) return result;
  for (const ir::Recompute recompute : recomputes_) {
    std::vector<std::vector<StageChoice>> more = divide(place, recompute, replicas);
    result.resize(std::max(result.size(), more.size()));
    for (std::size_t n = 0; n < more.size(); ++n) {
      for (StageChoice& choice : more[n]) {
        if (wanted(result[n], choice)) result[n].push_back(std::move(choice));
      }
    }
  }
  return result;
}

int ExhaustiveCosts::leader(int stage) const {
  return group(space_.stages[static_cast<std::size_t>(stage)].front()).front();
}

double ExhaustiveCosts::optimizer(int stage, int first, int blocks, int pipelines) const {
  const StageKind& groups = space_.stages[static_cast<std::size_t>(stage)];
  const ir::Zero zero{common_.zero, 0};
  const double elements = static_cast<double>(models::parameters(input_.workload, BlockId{first},
                                                                 BlockId{first + blocks - 1})) /
                          static_cast<double>(group(groups.front()).size()) /
                          models::shard_count(zero, pipelines);
  double slowest = 0;
  for (const int kind : groups) {
    slowest = std::max(slowest, pricer_.optimizer(gpu_type(group(kind).front()), elements).value);
  }
  return slowest;
}

ExhaustiveCosts::Squeeze ExhaustiveCosts::squeeze(const StagePlace& place,
                                                  const Replicas& replicas) {
  Squeeze worst;
  for (const int kind : space_.stages[static_cast<std::size_t>(place.stage)]) {
    Bytes need{std::numeric_limits<double>::infinity()};
    for (const ir::Recompute recompute : recomputes_) {
      const Held& memory = held(kind, place, 1, recompute, replicas);
      need = std::min(need, memory.fixed + place.in_flight * memory.per_in_flight);
    }
    for (const int c : group(kind)) {
      const Bytes have = capacity_[static_cast<std::size_t>(gpu_type(c))];
      const double ratio = have.value > 0 ? need / have : std::numeric_limits<double>::infinity();
      if (ratio <= worst.ratio) continue;
      worst = {ratio, fmt::format("blocks {} to {} of {} at TP {} need {:.2f} GiB, {} has {:.2f} "
                                  "GiB beside its context",
                                  place.first, place.first + place.blocks - 1,
                                  input_.workload.size(), group(kind).size(), need.value / 0x1p30,
                                  gpu(c).name, have.value / 0x1p30)};
    }
  }
  return worst;
}

void ExhaustiveCosts::make_rates() {
  const int most = static_cast<int>(
      std::min<std::int64_t>(input_.job.allowed.max_micro_batch_size, input_.job.global_batch));
  const auto blocks = static_cast<std::size_t>(input_.workload.size());
  // Least time per sample of each block, on the group's first member and with its all-reduces.
  const auto least_times = [&](int kind) {
    const int degree = static_cast<int>(group(kind).size());
    std::vector<double> least(blocks, std::numeric_limits<double>::infinity());
    for (const ir::Recompute recompute : recomputes_) {
      for (int samples = 1; samples <= most; ++samples) {
        const std::vector<Passes>& work =
            computed(gpu_type(group(kind).front()), degree, samples, recompute);
        const std::vector<Passes>* talk = degree > 1 ? &reduced(kind, samples, recompute) : nullptr;
        for (std::size_t b = 0; b < blocks; ++b) {
          const auto between = [&](const std::vector<Passes>& sums) {
            return sums[b + 1].forward - sums[b].forward + sums[b + 1].backward - sums[b].backward;
          };
          const double time = between(work) + (talk == nullptr ? 0 : between(*talk));
          least[b] = std::min(least[b], time / samples);
        }
      }
    }
    return least;
  };
  const std::size_t unit = input_.workload.first_layer().index();
  std::vector<double> weight(blocks, std::numeric_limits<double>::infinity());
  std::vector<double> of_unit;
  for (std::size_t kind = 0; kind < space_.groups.size(); ++kind) {
    const std::vector<double> least = least_times(static_cast<int>(kind));
    of_unit.push_back(least[unit]);
    for (std::size_t b = 0; b < blocks; ++b) {
      weight[b] = std::min(weight[b], least[unit] > 0 ? least[b] / least[unit] : 0.0);
    }
  }
  double units = 0;
  for (const double w : weight) units += w;
  for (const double time : of_unit) {
    // A little more than exact: prefix sums round.
    group_rates_.push_back(time * units > 0 ? (1 + 1e-9) / (time * units)
                                            : std::numeric_limits<double>::infinity());
  }
}

double ExhaustiveCosts::rate(int chain) const {
  double sum = 0;
  for (const int stage : space_.chains[static_cast<std::size_t>(chain)].stages) {
    for (const int kind : space_.stages[static_cast<std::size_t>(stage)]) {
      sum += group_rates_[static_cast<std::size_t>(kind)];
    }
  }
  return sum;
}

bool slicing_wins(const PlannerInput& input, const Space& space) {
  for (const GroupKind& kind : space.groups) {
    if (kind.size() < 2) continue;
    const std::vector<DeviceId> members = first_devices(space, kind);
    for (std::size_t c = 0; c < space.classes.size(); ++c) {
      const DeviceId from = device_outside(space, static_cast<int>(c), kind);
      if (!from.valid()) continue;
      const auto time = [&](Bytes bytes, ir::ActivationTransfer transfer) {
        return hop_time(input, from, members, bytes, transfer);
      };
      using ir::ActivationTransfer;
      // Nothing at all and very much: the fixed time and the time per byte.
      for (const Bytes bytes : {Bytes{}, Bytes{1e18}}) {
        if (time(bytes, ActivationTransfer::leader_broadcast) <
            time(bytes, ActivationTransfer::sliced)) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace orrery::planners::exhaustive
