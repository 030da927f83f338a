/// Programs whose micro-batches have different sequence lengths. A plan is lowered at one length,
/// the reference; with_lengths() then scales what each micro-batch moves and keeps to its own
/// length, and LengthPricer prices each compute op at its micro-batch's length. Simulator and
/// breakdowns need nothing else: they see a program and its prices.
///
/// Exact for what is linear in tokens: activations, tensor-, sequence- and expert-parallel
/// collectives, transfers between stages, buffers kept for the backward pass. Simplified: payload
/// regions and staging buffers stay those of the reference, so that these programs are for the
/// simulator, not for the executor.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "models/cost/pricer.h"
#include "models/ir/model_shape.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"

namespace orrery::models {

/// By pipeline and micro-batch, in tokens; 0: an empty micro-batch, which takes no time (of its
/// transfers the latencies stay).
using MicroBatchLengths = std::vector<std::vector<std::int64_t>>;

/// What a part of a step does after its backward passes.
enum class StepEnd {
  /// Synchronizes gradients, sends them to redundant copies, updates, gathers updated parameters
  /// (ZeRO).
  update,
  accumulate,  ///< Synchronizes gradients only: the update follows in another part.
};

/// `program` is lowered at header.sequence_length and has no reroutes; `lengths` has one entry for
/// each of its micro-batches (aborts otherwise). The result has no defect (ir::find_defect).
ir::Program with_lengths(ir::Program program, const MicroBatchLengths& lengths,
                         StepEnd end = StepEnd::update);

/// Prices of compute ops by sequence length: one Pricer for each length that was asked for. Caches;
/// not for concurrent use.
class LengthPricer {
 public:
  /// Copies what it needs.
  LengthPricer(Cluster cluster, ir::ModelShape shape, Job job, ir::Profile profile);

  /// The model at `length` tokens, in the job's dtype.
  const Workload& workload(std::int64_t length) const { return at(length).workload(); }
  const Pricer& at(std::int64_t length) const;
  /// Prices of a program that with_lengths() made with the same `lengths` and `end`. Optimizer
  /// steps cost what they cost at the reference length (`update`), or nothing.
  ProgramPrices prices(const ir::Program& program, const MicroBatchLengths& lengths,
                       StepEnd end = StepEnd::update) const;
  const Cluster& cluster() const { return cluster_; }
  const Job& job() const { return job_; }
  const ir::Profile& profile() const { return profile_; }

 private:
  /// GPU type, blocks, degrees, recompute, samples, kind of op, length.
  using Key = std::tuple<int, int, int, int, int, int, int, int, int, std::int64_t>;
  Seconds price(const ir::Program& program, const ir::Op& op, std::int64_t length) const;

  Cluster cluster_;
  ir::ModelShape shape_;
  Job job_;
  ir::Profile profile_;
  mutable std::map<std::int64_t, std::unique_ptr<Pricer>> pricers_;
  mutable std::map<Key, Seconds> known_;
};

}  // namespace orrery::models
