#include "experiments/validation/a100/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "experiments/validation/a100/kernels.h"
#include "experiments/validation/a100/programs.h"
#include "models/base/check.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
namespace {

constexpr std::size_t kNumbers = 7;

std::string encode(const sim::IterationResult& result) {
  const models::Breakdown& b = result.breakdown;
  const double numbers[kNumbers] = {
      result.iteration_time.value, b.compute.value,   b.tensor_parallel.value, b.pipeline.value,
      b.data_parallel.value,       b.optimizer.value, b.bubble.value};
  std::string bytes(sizeof numbers, '\0');
  std::memcpy(bytes.data(), numbers, sizeof numbers);
  return bytes;
}

A100Prediction decode(const std::string& bytes) {
  double n[kNumbers];
  ORRERY_CHECK(bytes.size() == sizeof n, "{} bytes from the simulation", bytes.size());
  std::memcpy(n, bytes.data(), sizeof n);
  return {{n[0]}, {{n[1]}, {n[2]}, {n[3]}, {n[4]}, {n[5]}, {n[6]}}};
}

std::string simulate_one(const A100Question& question, const models::Library& library,
                         bool folded) {
  const A100Row& row = *question.row;
  const A100Case made = make_case(row, question.parameters, folded, library);
  const models::Topology topology(made.cluster);
  const ir::Program program = make_program(row, made, topology);
  const models::ProgramPrices prices(op_times(row, question.parameters,
                                              made.cluster.gpu_types.front(), program,
                                              made.job.state_bytes.total()));
  sim::IterationSimulator simulator(made.cluster, topology, false);
  sim::IterationOptions options;
  options.record_spans = options.record_memory = options.record_links = false;
  return encode(simulator.run(program, prices, options));
}

/// Time that tensor-parallel collectives take in one pass of a layer: two all-reduces of its output
/// [Shoeybi et al. 2019, 3], or as many bytes with sequence parallelism.
Seconds collectives_of_layer(const A100Row& row, const A100Parameters& parameters) {
  if (row.tp == 1) return {};
  const Bytes output{2.0 * static_cast<double>(row.sequence) * row.hidden * row.micro_batch};
  const BytesPerSecond port =
      row.tp <= kA100GpusPerNode
          ? 300_GBps * parameters[A100Parameter::nvlink_share]
          : 25_GBps * parameters[A100Parameter::network_share] * row.nics_per_node;
  const double share = static_cast<double>(row.tp - 1) / row.tp;
  return 2 * 2 * share * output / port;
}

/// Prices of a row's blocks.
class Blocks {
 public:
  Blocks(const A100Row& row, const A100Parameters& parameters, const models::GpuType& gpu)
      : row_(row),
        slowdown_(row.software.older ? parameters[A100Parameter::older_software] : 1.0),
        device_{gpu.peak.at(ir::Dtype::fp16), gpu.memory_bandwidth,
                parameters[A100Parameter::gemm_share], parameters[A100Parameter::memory_share]} {
    const A100Block block = {
        .sequence = static_cast<double>(row.sequence),
        .hidden = static_cast<double>(row.hidden),
        .heads = static_cast<double>(row.heads),
        .vocabulary = static_cast<double>(row.vocabulary),
        .samples = static_cast<double>(row.micro_batch),
        .tp = static_cast<double>(row.tp),
        .sequence_parallel = row.sequence_parallel,
        .accumulation_bytes = row.micro_batches() > 1 ? row.software.accumulation_bytes : 0.0};
    layer_ = layer_time(block, device_);
    embedding_ = embedding_time(block, device_);
    head_ = head_time(block, device_);
    launching_ = std::max(Seconds{}, Seconds{parameters[A100Parameter::host_per_layer]} -
                                         collectives_of_layer(row, parameters));
  }

  Seconds pass(const ir::SegmentInfo& segment, bool backward) const {
    Seconds time;
    for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
      if (b.value == 0 || b.value == row_.layers + 1) {
        const A100BlockTime& end = b.value == 0 ? embedding_ : head_;
        time += slowdown_ * (backward ? end.backward : end.forward);
      } else {
        time += layer(backward, segment.recompute);
      }
    }
    return time;
  }

  Seconds update(double parameters) const { return optimizer_time(parameters, device_); }

 private:
  Seconds layer(bool backward, ir::Recompute recompute) const {
    if (!backward) return std::max(slowdown_ * layer_.forward, launching_);
    Seconds kernels = layer_.backward;
    if (recompute == ir::Recompute::full) kernels += layer_.forward;
    if (recompute == ir::Recompute::selective) kernels += layer_.attention_core;
    const double passes = recompute == ir::Recompute::full ? 2 : 1;
    return std::max(slowdown_ * kernels, passes * launching_);
  }

  const A100Row& row_;
  double slowdown_;
  A100Device device_;
  A100BlockTime layer_;
  A100BlockTime embedding_;
  A100BlockTime head_;
  Seconds launching_;
};

}  // namespace

const char* name_of(A100Parameter parameter) {
  switch (parameter) {
    case A100Parameter::gemm_share:
      return "gemm_share";
    case A100Parameter::memory_share:
      return "memory_share";
    case A100Parameter::nvlink_share:
      return "nvlink_share";
    case A100Parameter::network_share:
      return "network_share";
    case A100Parameter::host_per_layer:
      return "host_per_layer";
    case A100Parameter::older_software:
      return "older_software";
  }
  return "";
}

const char* unit_of(A100Parameter parameter) {
  return parameter == A100Parameter::host_per_layer ? "s" : "";
}

std::vector<Seconds> op_times(const A100Row& row, const A100Parameters& parameters,
                              const models::GpuType& gpu, const ir::Program& program,
                              double state_bytes_per_parameter) {
  const Blocks blocks(row, parameters, gpu);
  std::map<std::pair<std::int32_t, bool>, Seconds> known;
  std::vector<Seconds> times(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (op.kind == ir::OpKind::optimizer_step) {
      times[i] = blocks.update(op.bytes.value / state_bytes_per_parameter);
    } else if (op.kind == ir::OpKind::forward || op.kind == ir::OpKind::backward) {
      const bool backward = op.kind == ir::OpKind::backward;
      const auto [entry, fresh] = known.try_emplace({op.segment, backward});
      if (fresh) {
        entry->second = blocks.pass(program.segment_of(op), backward);
      }
      times[i] = entry->second;
    }
  }
  return times;
}

std::vector<A100Prediction> simulate(const std::vector<A100Question>& questions,
                                     const models::Library& library,
                                     const A100Simulation& options) {
  std::vector<A100Prediction> answers;
  std::deque<sim::ForkedRun> running;
  std::size_t started = 0;
  while (answers.size() < questions.size()) {
    while (started < questions.size() &&
           running.size() < static_cast<std::size_t>(std::max(1, options.jobs))) {
      const A100Question& question = questions[started++];
      running.emplace_back([&] { return simulate_one(question, library, options.folded); });
    }
    const sim::ForkResult result = running.front().join();
    running.pop_front();
    if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
      throw std::runtime_error(
          fmt::format("{}: {}", questions[answers.size()].row->id, failure->message));
    }
    answers.push_back(decode(std::get<std::string>(result)));
    if (options.progress) options.progress(answers.size(), questions.size());
  }
  return answers;
}

}  // namespace orrery::experiments
