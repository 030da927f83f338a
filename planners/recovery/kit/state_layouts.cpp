#include "planners/recovery/kit/state_layouts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "models/lower/block_replicas.h"
#include "models/lower/placement.h"

namespace orrery::planners {
namespace {

/// Length of the split, expert, tied, sharded: parameters of a block that agree lie alike.
using LayoutKey = std::tuple<std::int64_t, bool, bool, bool>;

/// Plans whose sizes are kept: those of a few layouts that copies still have, and of new ones.
constexpr std::size_t kRemembered = 8;

bool same_bytes(const models::ReshardBytes& a, const models::ReshardBytes& b) {
  return a.weight == b.weight && a.master == b.master && a.moments == b.moments;
}

/// Adds the slices between two cuts each.
void add_slices(const models::Layout& layout, Bytes all, StateSizes& sizes) {
  std::vector<std::int64_t> cuts;
  for (const models::Piece& piece : layout.pieces) {
    cuts.insert(cuts.end(), {piece.slice.begin, piece.slice.end});
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const double each = all.value / static_cast<double>(layout.length);
  const std::size_t first = sizes.slices.size();
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    sizes.slices.push_back({each * static_cast<double>(cuts[i + 1] - cuts[i]), {}});
  }
  for (const models::Piece& piece : layout.pieces) {
    sizes.of_device[piece.owner] += each * static_cast<double>(piece.slice.size());
    std::size_t i = std::lower_bound(cuts.begin(), cuts.end(), piece.slice.begin) - cuts.begin();
    for (; cuts[i] < piece.slice.end; ++i) sizes.slices[first + i].holders.push_back(piece.owner);
  }
}

/// Maps devices of equal groups onto each other; false when two plans differ in what decides the
/// shares of their devices.
class ShareMatch {
 public:
  explicit ShareMatch(int devices) : forward_(devices, -1), taken_(devices, false) {}

  bool match(const ir::Plan& a, const ir::Plan& b) {
    if (a.redundancy != b.redundancy || a.virtual_stages != b.virtual_stages ||
        a.pipelines.size() != b.pipelines.size()) {
      return false;
    }
    for (std::size_t p = 0; p < a.pipelines.size(); ++p) {
      if (!match(a.pipelines[p], b.pipelines[p])) return false;
    }
    return true;
  }
  std::vector<int> take() { return std::move(forward_); }

 private:
  bool match(const ir::Pipeline& a, const ir::Pipeline& b) {
    if (a.stages.size() != b.stages.size() || a.reroutes != b.reroutes) return false;
    // Whether a stage is idle, and so holds nothing, depends on the number of micro-batches.
    if (!a.reroutes.empty() && a.micro_batches != b.micro_batches) return false;
    for (std::size_t s = 0; s < a.stages.size(); ++s) {
      const auto& left = a.stages[s].segments;
      const auto& right = b.stages[s].segments;
      if (left.size() != right.size()) return false;
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (!match(left[i], right[i])) return false;
      }
    }
    return true;
  }

  bool match(const ir::Segment& a, const ir::Segment& b) {
    if (a.first_block != b.first_block || a.last_block != b.last_block ||
        a.virtual_stage != b.virtual_stage || a.zero != b.zero ||
        a.expert_parallel != b.expert_parallel || a.groups.size() != b.groups.size()) {
      return false;
    }
    for (std::size_t g = 0; g < a.groups.size(); ++g) {
      if (!match(a.groups[g], b.groups[g])) return false;
    }
    return true;
  }

  bool match(const ir::Group& a, const ir::Group& b) {
    if (a.tensor_parallel != b.tensor_parallel || a.sequence != b.sequence ||
        a.sequence_degree != b.sequence_degree || a.experts != b.experts ||
        a.devices.size() != b.devices.size()) {
      return false;
    }
    for (std::size_t i = 0; i < a.devices.size(); ++i) {
      int& known = forward_[a.devices[i].index()];
      const int device = b.devices[i].value;
      if (known == device) continue;
      if (known >= 0 || taken_[b.devices[i].index()]) return false;
      known = device;
      taken_[b.devices[i].index()] = true;
    }
    return true;
  }

  std::vector<int> forward_;
  std::vector<bool> taken_;
};

/// What devices hold under a plan where that does not depend on others.
class OwnShares {
 public:
  OwnShares(const ir::Plan& plan, int devices) : begin_(devices + 1, 0) {
    apart_ = plan.redundancy == ir::Redundancy::none;
    each(plan, [&](const ir::Segment& segment, DeviceId device, Share) {
      apart_ = apart_ && !segment.zero.shards_optimizer() && segment.expert_parallel <= 1;
      ++begin_[device.index() + 1];
    });
    for (std::size_t d = 1; d < begin_.size(); ++d) begin_[d] += begin_[d - 1];
    shares_.resize(begin_.back());
    std::vector<std::ptrdiff_t> next(begin_.begin(), begin_.end() - 1);
    each(plan, [&](const ir::Segment&, DeviceId device, Share share) {
      shares_[next[device.index()]++] = share;
    });
  }

  bool apart() const { return apart_; }
  bool same(const OwnShares& other, std::size_t device) const {
    return std::equal(shares_.begin() + begin_[device], shares_.begin() + begin_[device + 1],
                      other.shares_.begin() + other.begin_[device],
                      other.shares_.begin() + other.begin_[device + 1]);
  }

 private:
  struct Share {
    BlockId first;
    BlockId last;
    int tensor_parallel = 1;
    int rank = 0;
    bool operator==(const Share&) const = default;
  };

  template <class Take>
  static void each(const ir::Plan& plan, const Take& take) {
    for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
      for (std::size_t s = 0; s < plan.pipelines[p].stages.size(); ++s) {
        if (models::is_idle(plan, static_cast<int>(p), static_cast<int>(s))) continue;
        for (const ir::Segment& segment : plan.pipelines[p].stages[s].segments) {
          for (const ir::Group& group : segment.groups) {
            int at = 0;
            for (const DeviceId device : group.devices) {
              take(segment, device,
                   {segment.first_block, segment.last_block, group.tensor_parallel,
                    at++ % group.tensor_parallel});
            }
          }
        }
      }
    }
  }

  bool apart_ = true;
  std::vector<std::ptrdiff_t> begin_;  ///< By device: of its shares.
  std::vector<Share> shares_;
};

/// Calls visit(layout, bytes) for all state of the plan, states that lie alike (of several
/// parameters and blocks) together: `bytes` of one full replica. Tied matrices count once.
template <class Visit>
void for_each_layout(const ir::Plan& plan, const models::Cluster& cluster,
                     const models::Workload& workload, const models::ReshardBytes& bytes,
                     Visit&& visit) {
  const models::Placement placement = models::place(plan, cluster, true);
  const models::BlockReplicas replicas(workload, placement);
  const auto is_end = [&](int b) { return b == 0 || b + 1 == workload.size(); };
  for (std::int32_t first = 0; first < workload.size();) {
    const BlockId block{first};
    std::int32_t end = first + 1;  // End of the run of blocks that lie alike.
    while (end < workload.size() && replicas.alike(block, {end}) &&
           !(replicas.tied() && (is_end(first) || is_end(end)))) {
      ++end;
    }
    std::map<LayoutKey, std::pair<std::size_t, double>> groups;  // A parameter, and bytes of all.
    const auto& parameters = workload.block(block).parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const bool tied = replicas.is_tied(block, p);
      if (tied && first > 0) continue;  // Counted with the embedding.
      for (const bool optimizer : {false, true}) {
        const ir::Zero& zero = replicas.zero(block);
        const bool sharded = optimizer ? zero.shards_optimizer() : zero.shards_parameters();
        const LayoutKey key = {parameters[p].split_length, parameters[p].expert, tied, sharded};
        groups.try_emplace(key, p, 0.0).first->second.second +=
            static_cast<double>(parameters[p].elements) *
            (optimizer ? bytes.optimizer() : bytes.weight);
      }
    }
    for (const auto& [key, group] : groups) {
      visit(replicas.holdings(block, group.first, std::get<3>(key)),
            Bytes{group.second * (end - first)});
    }
    first = end;
  }
}

}  // namespace

std::optional<std::vector<int>> same_shares(const ir::Plan& layout, const ir::Plan& plan,
                                            int devices) {
  ShareMatch matching(devices);
  if (!matching.match(layout, plan)) return std::nullopt;
  return matching.take();
}

std::vector<bool> unchanged_shares(const ir::Plan& layout, const ir::Plan& plan, int devices) {
  std::vector<bool> same(devices, false);
  const OwnShares before(layout, devices);
  const OwnShares after(plan, devices);
  if (!before.apart() || !after.apart()) return same;
  for (std::size_t d = 0; d < same.size(); ++d) same[d] = before.same(after, d);
  return same;
}

models::LinkRanks& StateMemory::ranks(const PolicyInput& input, ir::Location store) {
  return ranks_.try_emplace(store, input.cluster, input.topology, store).first->second;
}

std::shared_ptr<StateMemory> new_state_memory() { return std::make_shared<StateMemory>(); }

StateMemory::Answer StateMemory::sizes_of(const PolicyInput& input, const ir::Plan& plan,
                                          const models::ReshardBytes& bytes) {
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (!same_bytes(known->per_parameter, bytes)) continue;
    auto to = same_shares(known->plan, plan, input.cluster.size());
    if (!to) continue;
    std::rotate(known_.begin(), known, known + 1);
    return {&known_.front(), std::move(*to)};
  }
  if (known_.size() == kRemembered) known_.pop_back();
  StateSizes& sizes =
      known_.emplace_front(StateSizes{plan, bytes, std::vector<double>(input.cluster.size()), {}});
  for_each_layout(plan, input.cluster, input.workload, bytes,
                  [&](const models::Layout& layout, Bytes all) { add_slices(layout, all, sizes); });
  Answer answer{&sizes, {}};
  for (int device = 0; device < input.cluster.size(); ++device) answer.to.push_back(device);
  return answer;
}

}  // namespace orrery::planners
