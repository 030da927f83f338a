/// One rank of a run: carries out its ops of the Program, step by step, with real numbers. It
/// decides nothing: order, communication and regions all come from the Program.
///
/// The compute stream runs on the caller's thread, the collective stream on one of its own;
/// point-to-point ops start as soon as their dependencies have ended. An error on any of them ends
/// the step on all.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/engine/data.h"
#include "executor/model/shard.h"
#include "executor/net/transport.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::executor {

/// Wall time over processor time above which an op that is not slowed down counts as disturbed.
inline constexpr double kDisturbed = 1.05;

struct WorkerOptions {
  AdamStep adam;  ///< `step` is set from the step number. SGD takes its learning rate.
  bool record_spans = true;
  bool record_memory = true;
  /// An emulated slower device: a compute op lasts this multiple of the processor time that it took
  /// by itself (without inner collectives), or what it took if that was longer already. Back ends
  /// that do not compute on this thread: of its wall time. 1: not at all.
  double slowdown = 1;
  /// Called at the start of each op with its index in the Program, on the thread that runs it: for
  /// tests that break things.
  std::function<void(OpId)> before_op;
  /// Called when the optimizer has changed the weights and the step has not ended, on the thread of
  /// the compute stream.
  std::function<void()> after_update;
};

/// Loss of one sample: sum over its tokens, in nats.
struct SampleLoss {
  std::int64_t sample = 0;  ///< In the step: 0 to global batch - 1.
  double loss = 0;
};

struct StepResult {
  std::int64_t step = 0;
  std::vector<SampleLoss> losses;  ///< Of the samples whose head this rank has (first member only).
  std::int64_t start_ns = 0;       ///< executor::now_ns().
  std::int64_t end_ns = 0;
  /// Instants are now_ns().
  std::vector<ir::Span> spans;
  std::vector<ir::MemorySample> memory;
  std::int64_t peak_bytes = 0;  ///< Of the back end in this step.
  std::int64_t compute_ops = 0;
  /// Those among them that could not be as fast as they should: their own wall time was above
  /// max(slowdown, kDisturbed) x processor time, because others had the core.
  std::int64_t disturbed_ops = 0;
};

class Worker {
 public:
  /// Keeps references. The Program is expanded, well formed and supported (find_unsupported, and
  /// find_unrunnable); rank i of it is rank i of the transport.
  Worker(const ir::Program& program, Backend& backend, Transport& transport,
         const TokenSource& tokens, WorkerOptions options);
  ~Worker();

  /// One optimizer step, numbered from 1. Throws TransportError, and what the back end throws; the
  /// worker is of no use after that.
  StepResult step(std::int64_t number);

  /// Parameters and states, for initializing, checkpoints and tests.
  ModelShard& shard();
  /// Blocks that this rank holds, ascending.
  const std::vector<BlockId>& blocks() const;
  /// Units [begin, end) of each parameter of the block whose optimizer states this rank updates:
  /// with ZeRO-1 its shard.
  struct Owned {
    int parameter = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  std::vector<Owned> owned(BlockId block) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// What makes a Program impossible to run op by op here, in words: a collapsed one, dependencies
/// across ranks, experts among groups that do not meet at each dispatch, all-to-all, state ops.
std::vector<std::string> find_unrunnable(const ir::Program& program);

/// Mean loss per token over the samples of a step, summed in the order of the samples, so that it
/// does not depend on who computed them.
double mean_loss(std::vector<SampleLoss> losses, std::int64_t tokens_per_sample);

}  // namespace orrery::executor
