/// Plans without tensor and pipeline parallelism, for the baselines that have only those: every
/// replica holds the whole model in one stage, all replicas get equal batches, ZeRO divides states
/// and Ulysses sequences. What is legal, what it costs, its plan, and the legal setting nearest to
/// one that is not.
/// [Rajbhandari et al. 2020 (ZeRO); Jacobs et al. 2023 (Ulysses); Zhao et al. 2023 (FSDP)]
#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "planners/kit/stage_costs.h"
#include "planners/planner.h"

namespace orrery::planners {

/// One setting, as the papers write it: DP16 SP2, micro-batch 2.
struct DataParallelSetting {
  int data_parallel = 1;
  int sequence_degree = 1;  ///< Ulysses; 1: none.
  int micro_batch_size = 1;
  int zero = 0;
  int shard_group = 0;  ///< Devices that divide the states among them; 0: all.
  ir::Recompute recompute = ir::Recompute::none;
};

/// Degrees that a user fixes; 0: free.
struct ForcedDegrees {
  int data_parallel = 0;
  int sequence_degree = 0;
  int micro_batch_size = 0;
  bool any() const { return data_parallel > 0 || sequence_degree > 0 || micro_batch_size > 0; }
};

/// Keeps references to the input. Caches; not for concurrent use.
class DataParallel {
 public:
  /// `ulysses`: whether sequence degrees above 1 are allowed at all.
  DataParallel(const PlannerInput& input, bool ulysses);

  /// What forbids the degrees, in words with numbers; nothing if they are legal: as many devices,
  /// batch = DP x micro-batch size x whole number of steps of accumulation, heads and tokens that
  /// the sequence degree divides, groups of one vendor, and what the job allows.
  std::optional<std::string> why_not(int data_parallel, int sequence_degree,
                                     int micro_batch_size) const;
  /// All legal settings of the degrees (the other members have their defaults): those over all
  /// devices, or with `idle` also those over fewer. By sequence degree, DP, micro-batch size.
  std::vector<DataParallelSetting> legal(bool idle, const ForcedDegrees& forced) const;
  /// Answer to forced degrees that nothing legal has: "not expressible", why, and the legal setting
  /// with the smallest sum over the forced degrees of |log2(legal / forced)|; of equals the one on
  /// most devices, then the first of legal().
  models::Infeasible not_expressible(const ForcedDegrees& forced) const;

  /// Devices of the replicas, a sequence group after the other: whole groups inside nodes as far as
  /// that gives enough of them, nodes with most devices first, so that an incomplete node idles
  /// before a whole one does.
  std::vector<DeviceId> devices(int data_parallel, int sequence_degree) const;
  /// Devices that the setting uses on each node, if equally many; else 0.
  int node_shard_group(const DataParallelSetting& setting) const;

  /// Micro-batches of a replica x (compute on the slowest GPU + Ulysses' all-to-alls + ZeRO-3's
  /// gathers), then gradient synchronization, gathering of parameters (ZeRO-1 and 2) and optimizer
  /// step, nothing overlapped.
  Seconds estimate(const DataParallelSetting& setting) const;
  ir::Plan build(const DataParallelSetting& setting) const;
  /// "DP16 SP2, micro-batch 2, full recompute, ZeRO-3 in groups of 8".
  std::string describe(const DataParallelSetting& setting) const;

 private:
  Seconds passes(const DataParallelSetting& s, const std::vector<DeviceId>& devices) const;
  Seconds all_to_alls(const DataParallelSetting& s, const std::vector<DeviceId>& devices) const;
  Seconds gathers(const DataParallelSetting& s, const std::vector<DeviceId>& devices) const;
  Seconds synchronization(const DataParallelSetting& s, const std::vector<DeviceId>& devices) const;
  /// Ring all-reduce of `bytes` inside each set of `size` neighbors, slowest.
  Seconds inside(const std::vector<DeviceId>& devices, int size, Bytes bytes) const;

  const PlannerInput& input_;
  bool ulysses_;
  StageCosts costs_;
  int layers_;
};

}  // namespace orrery::planners
