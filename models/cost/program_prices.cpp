#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "models/base/ids.h"
#include "models/cost/host_step.h"
#include "models/cost/pricer.h"
#include "models/ir/op_traits.h"

namespace orrery::models {
namespace {

/// What decides the price of a compute op.
struct Key {
  std::int64_t device;   ///< GPU type, or -1 - rank where a rank stands for several types.
  std::int64_t segment;  ///< Segment, or -1 - number of the rank's group where the op has none.
  std::int64_t kind;
  std::int64_t samples;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::size_t hash = 0;
    for (const std::int64_t value : {key.device, key.segment, key.kind, key.samples}) {
      hash = hash * 0x9e3779b97f4a7c15ULL + as_size(value);
    }
    return hash ^ (hash >> 32);
  }
};

}  // namespace

ProgramPrices::ProgramPrices(const ir::Program& program, const Pricer& pricer)
    : index_(program.ops.size(), 0), prices_(1), overlaps_(pricer.overlaps(program)) {
  std::unordered_map<Key, std::uint32_t, KeyHash> known;
  IdVector<RankId, std::int64_t> device_of_rank;
  device_of_rank.reserve(program.ranks.size());
  for (const ir::Rank& rank : program.ranks) {
    const int type = pricer.cluster().device(rank.device).gpu_type;
    const bool uniform = std::all_of(
        rank.devices.begin(), rank.devices.end(),
        [&](DeviceId device) { return pricer.cluster().device(device).gpu_type == type; });
    device_of_rank.push_back(uniform ? type : -1 - std::int64_t{device_of_rank.next_id().value});
  }
  const std::optional<HostShares> hosts = host_shares(program, pricer.cluster());
  std::map<std::array<std::int32_t, 3>, std::int64_t> groups;
  for (const OpId id : index_.ids()) {
    const ir::Op& op = program.op(id);
    if (!ir::is_compute(op.kind)) {  // prices_[0] is zero
      if (const auto storage = pricer.storage(op)) storage_.emplace(id, *storage);
      continue;
    }
    std::int64_t segment = op.segment;
    if (op.segment == ir::kNone) {
      const ir::Rank& rank = program.rank_of(op);
      const std::array<std::int32_t, 3> group = {rank.pipeline, rank.stage, rank.group};
      segment = -1 - groups.emplace(group, groups.size()).first->second;
    }
    const Key key{device_of_rank[op.rank], segment, static_cast<std::int64_t>(op.kind), op.samples};
    const auto [place, added] = known.emplace(key, static_cast<std::uint32_t>(prices_.size()));
    if (added) prices_.push_back(pricer.compute(program, op, hosts ? &*hosts : nullptr));
    index_[id] = place->second;
  }
}

ProgramPrices::ProgramPrices(std::vector<Seconds> by_op, Overlaps overlaps)
    : index_(by_op.size()), prices_(std::move(by_op)), overlaps_(std::move(overlaps)) {
  std::iota(index_.begin(), index_.end(), 0U);
}

}  // namespace orrery::models
