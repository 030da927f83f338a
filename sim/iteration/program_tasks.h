/// A Program as tasks of the flow engine: one delay or flow for an op where that is enough; several
/// with barriers around them for ops that several ranks take part in. Private to sim/iteration.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/rng.h"
#include "models/base/units.h"
#include "models/cost/collective.h"
#include "models/cost/pricer.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "sim/flow/engine.h"
#include "sim/iteration/folding.h"
#include "sim/iteration/inner.h"
#include "sim/iteration/iteration.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

class ProgramTasks {
 public:
  struct Input {
    const ir::Program& program;
    const models::ProgramPrices& prices;
    const models::Cluster& cluster;
    models::Network network;
    const IterationOptions& options;
    const Folding* folding = nullptr;
    RouteId first_route = {};  ///< Of the engine, for folding->routes.
    /// By rank that loses speed to overlap: its collectives, of all iterations.
    std::span<const BackgroundId> backgrounds = {};
  };
  /// Keeps references; build() adds the tasks of all ops to `engine`, with all their dependencies.
  ProgramTasks(const Input& input, FlowEngine& engine);
  void build();

  /// The op starts when the first starts and ends when the last ends; often they are the same.
  TaskId first(OpId op) const { return ends(op).first; }
  TaskId last(OpId op) const { return ends(op).last; }
  /// After the run: how long the op computed, without its inner collectives and the wait for them.
  Seconds computed(OpId op);
  /// After the run: what of its inner collectives gathered sharded parameters. Collectives over the
  /// same edges share the time of their flows by their bytes.
  Seconds gathered(OpId op);
  /// As ir::Span::bytes: what a communication op carries; the tensors of a compute op's inner
  /// collectives.
  Bytes payload(OpId op);
  const SimulatedWork& work() const { return work_; }
  /// Calls take(source, destination, bytes) for what closed forms moved without flows.
  void for_each_closed_form(
      const std::function<void(DeviceId source, DeviceId destination, Bytes bytes)>& take);
  /// After the run of a folded program: appends when its flows moved bytes.
  void append_intervals(int iteration, std::vector<FlowInterval>& intervals) const;
  /// Bytes of the flows on each of Folding::routes.
  std::vector<Bytes> bytes_by_route() const;

 private:
  TaskId delay(Seconds duration);
  TaskId flow(DeviceId source, DeviceId destination, Bytes bytes, Seconds extra = {});
  TaskId folded_flow(std::int32_t route, Bytes bytes, Seconds extra);
  /// False where another flow of its class stands for this one.
  bool is_simulated(DeviceId source, DeviceId destination) const;
  std::span<const ir::Transfer> simulated_transfers(const ir::Op& op);
  /// One message (models::point_to_point_flow).
  TaskId message(DeviceId source, DeviceId destination, Bytes bytes);
  TaskId barrier();
  struct Ends {
    TaskId first;
    TaskId last;
  };
  Ends ends(OpId op) const;
  void set(OpId op, TaskId first, TaskId last);
  /// Price of a compute op with jitter and slowdown.
  Seconds compute(OpId op) const;
  /// What the op's kernels leave uncovered of the inner collectives that they hide, in closed form.
  Seconds uncovered(OpId op);
  /// A delay of a compute op, or of one of so many equal parts: it computes, more slowly while
  /// collectives of its rank run beside it; then comes what is uncovered, and `rest`.
  TaskId computing(OpId op, Seconds rest = {}, int parts = 1);
  Seconds duration(TaskId task) const;

  void add_op(OpId id);
  void add_compute(OpId id);
  void count_use(std::span<const OpId> op_group, std::int32_t inner);
  void add_closed_form(std::span<const OpId> op_group, std::int32_t inner);
  void add_merged(std::span<const OpId> op_group, std::int32_t inner);
  void add_per_block(std::span<const OpId> op_group, std::int32_t inner);
  /// Runs the flows of a phase after `start` and returns what ends with the last one.
  TaskId add_phase(const InnerPhase& phase, TaskId start);
  /// The same, noted for gathered() if the phase gathers parameters for the op group.
  TaskId add_phase(const InnerPhase& phase, TaskId start, std::span<const OpId> op_group);
  void add_transfer(OpId id);
  void add_state(OpId id);
  void add_collective(const ir::Collective& collective);
  /// The background of a rank that loses speed to overlap; else an invalid one.
  BackgroundId background_of(RankId rank) const {
    return backgrounds_.empty() ? BackgroundId{} : backgrounds_[rank.index()];
  }
  void add_folded_collective(std::int32_t of, std::span<const OpId> members);
  void add_ring_steps(ir::CollectiveKind kind, std::span<const DeviceId> group, Bytes bytes,
                      TaskId start, TaskId end);
  void add_dependencies();
  std::span<const RankId> ranks_of(std::span<const OpId> op_group);

  std::vector<models::FlowEdge> edges_of(std::int32_t shape) const;
  /// Those of its edges that are simulated.
  const std::vector<models::FlowEdge>& shape_flows(std::int32_t shape);
  std::optional<Seconds> local_time(const ir::Collective& collective);
  Seconds storage_time(const ir::Op& op) const;
  double factor(const ir::Op& op, std::uint32_t position) const;
  double noise(DeviceId device, std::uint32_t position) const;

  const ir::Program& program_;
  const models::ProgramPrices& prices_;
  const models::Cluster& cluster_;
  const models::PathFunction& path_;
  const IterationOptions& options_;
  const bool calibrated_;
  const Folding* folding_;
  const RouteId first_route_;
  FlowEngine& engine_;
  InnerTable inner_;
  InnerMode mode_;
  Rng rng_;
  IdVector<DeviceId, double> slowdown_;
  IdVector<OpId, std::int32_t> tasks_;  ///< The only task, or ~ of an index into ends_.
  std::vector<Ends> ends_;
  std::vector<RankId> group_ranks_;
  std::vector<TaskId> group_tasks_;
  std::vector<std::vector<ir::Transfer>> set_transfers_;           ///< By set, folded, when needed.
  std::vector<std::vector<models::FlowEdge>> shape_flows_;         ///< By shape, when needed.
  std::vector<std::optional<std::optional<Seconds>>> local_time_;  ///< By shape, when needed.
  /// Uses of closed forms, by (inner set, first rank of the op group) with the ranks of the op
  /// group.
  struct InnerUse {
    std::int64_t count = 0;
    std::vector<RankId> ranks;
  };
  std::map<std::pair<std::int32_t, std::int32_t>, InnerUse> inner_uses_;
  std::vector<std::int64_t> shape_uses_;
  struct FoldedFlow {
    TaskId task;
    std::int32_t route;
    Bytes bytes;
    Seconds tail;  ///< All latency after its last byte.
  };
  std::vector<FoldedFlow> folded_flows_;
  struct Gather {
    TaskId before;
    TaskId last;
    double share = 1;  ///< Of the time between their ends.
  };
  std::unordered_map<std::int32_t, std::vector<Gather>> gathers_;  ///< By first op of an op group.
  std::vector<std::optional<Ends>> class_ends_;                    ///< By class of collectives.
  const std::span<const BackgroundId> backgrounds_;
  /// By op that InnerMode::per_block splits and that collectives slow.
  std::unordered_map<std::int32_t, std::vector<TaskId>> parts_;
  SimulatedWork work_;
};

}  // namespace orrery::sim
