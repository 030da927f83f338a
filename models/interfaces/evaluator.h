/// Judging plans: the interface through which planners ask a judge (the simulator, a closed form)
/// that they cannot look into, and the values that go through it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/ir/plan.h"
#include "models/ir/verdict.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// An expected "no": the constraint that forbids every plan, and a witness in words, for example
/// "stage 3 on node 2 needs 91 GiB, RTX 4090 has 24 GiB".
struct Infeasible {
  std::string constraint;
  std::string witness;
};

/// Where the time of an iteration goes, as mean over devices. The parts add up to the whole.
struct Breakdown {
  Seconds compute;
  Seconds tensor_parallel;  ///< Inner collectives: tensor, sequence, expert parallelism.
  Seconds zero;             ///< Gathers of sharded parameters inside passes (ZeRO-3).
  Seconds pipeline;         ///< Exposed sends, receives and activation broadcasts.
  Seconds data_parallel;    ///< Exposed gradient synchronization and gathers after the optimizer.
  Seconds optimizer;
  Seconds bubble;  ///< Idle.
};

struct Evaluation {
  Seconds iteration_time;
  ir::MemoryVerdict memory;
  Breakdown breakdown;
  double tokens_per_second = 0;
  double mfu = 0;  ///< Model FLOPs per iteration / (time x peak of all devices of the plan).
  double hfu = 0;  ///< As MFU, counting recomputed FLOPs too.
  std::optional<Dollars> dollars_per_million_tokens;  ///< None where a GPU type has no price.
  std::optional<Joules> joules_per_token;  ///< At most; none where a GPU type has no power.
  std::vector<Seconds> pipeline_times;  ///< End of each pipeline's last backward, from step start.
  /// Closed forms only: gradient synchronization, which no pipeline time contains.
  std::optional<Seconds> synchronization;
};

void describe(config::Visitor& v, Infeasible& infeasible);
/// Verdict and fit are written, and follow from the memory when they are read.
void describe(config::Visitor& v, Evaluation& evaluation);

/// The iteration time with what follows from it for the plan: throughput, utilization, price,
/// energy (models/cost/mfu.h). Breakdown and pipeline times are left to the caller.
Evaluation evaluation_of(const ir::Plan& plan, const Cluster& cluster, const Workload& workload,
                         Seconds iteration_time, ir::MemoryVerdict memory);

/// Judges a structurally valid plan (see check/validate.h).
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual Evaluation evaluate(const ir::Plan& plan) const = 0;
  virtual std::string name() const = 0;
  /// Whether times are those of the undisturbed simulator or longer, so that what is proven of it
  /// (lower bounds) holds: not those of closed forms, nor drawn ones.
  virtual bool is_undisturbed() const { return false; }

  /// An evaluation under way.
  class Pending {
   public:
    virtual ~Pending() = default;
    /// Waits for it. Only once.
    virtual Evaluation join() = 0;
  };
  /// As evaluate(), to be joined later; several may be under way. An evaluator that cannot work
  /// while its caller does evaluates at once.
  virtual std::unique_ptr<Pending> start(const ir::Plan& plan) const;
};

}  // namespace orrery::models

namespace orrery::ir {

void describe(config::Visitor& v, MemoryUse& use);
void describe(config::Visitor& v, HostMemoryUse& use);

}  // namespace orrery::ir
