/// What the executor adds to the compute of its ops, and what writing the run log adds to a step.
/// Targets: 20 us an op; 1 % of a step.
///
///   executor_bench [REPEATS]     the best of this many steps counts (20); ends with 1 if a target
///   is
///                                missed
///
/// Overhead: steps of a program of hundreds of ops on matrices so small that they cost next to
/// nothing, less the same passes called one after the other without Program, streams or transport,
/// divided by the number of ops. One rank: in wall time. Two ranks, threads of this process joined
/// by TCP: in processor time of all threads, since ranks that wait for each other overlap; half of
/// these ops are messages.
///
/// Log: for the step of a small Llama on one rank, the processor time of everything that only the
/// log needs: a step's report as text (in the rank, training waits for it), its way to the store,
/// the launcher's reading, and its share of the files that are written when the run ends.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "executor/engine/worker.h"
#include "executor/launcher/generation_tracker.h"
#include "executor/launcher/messages.h"
#include "executor/net/clock.h"
#include "executor/net/store.h"
#include "models/ir/perfetto.h"
#include "models/ir/wire.h"
#include "models/lower/lower.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "tests/executor/net/meshes.h"
#include "tests/models/lower/random_plan.h"
#include "tests/worlds/clusters.h"

namespace orrery::executor {
namespace {

constexpr double kOverheadTarget = 20e-6;  ///< Seconds an op.
constexpr double kLogTarget = 0.01;        ///< Of a step.
constexpr double kNanosecond = 1e-9;

double process_cpu() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * kNanosecond;
}
double wall() { return static_cast<double>(now_ns()) * kNanosecond; }
double thread_cpu() { return static_cast<double>(thread_cpu_ns()) * kNanosecond; }

models::Workload llama(int layers, int hidden, int vocabulary, std::int64_t length) {
  ir::ModelShape shape;
  shape.name = "bench";
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = hidden / 2;
  shape.ffn = 2 * hidden;
  shape.vocabulary = vocabulary;
  return models::build_workload(shape, length, ir::Dtype::fp32);
}

/// One pipeline of single devices, micro-batches of `size` samples.
ir::Program lowered(const models::Workload& workload, int stages, int micro_batches, int size) {
  ir::Pipeline pipeline;
  pipeline.micro_batches = micro_batches;
  pipeline.micro_batch_size = size;
  for (int s = 0; s < stages; ++s) {
    ir::Segment segment;
    segment.first_block = {workload.size() * s / stages};
    segment.last_block = {workload.size() * (s + 1) / stages - 1};
    ir::Group group;
    group.devices = {{s}};
    group.samples = size;
    segment.groups = {group};
    pipeline.stages.push_back({{segment}});
  }
  ir::Plan plan;
  plan.schedule = ir::ScheduleKind::one_f_one_b;
  plan.pipelines = {pipeline};
  models::Job job;
  job.global_batch = micro_batches * size;
  job.sequence_length = workload.sequence_length;
  job.dtype = ir::Dtype::fp32;
  models::LowerOptions options;
  options.collapsed = false;
  options.seed = 1;
  return models::lower(plan, worlds::one_node(stages), workload, job, options);
}

/// The passes of a step and its update, without an executor; seconds of `clock`, the best step.
double bare(const ir::Program& program, int stages, int micro_batches, int size, int repeats,
            const std::function<double()>& clock) {
  const auto backend = make_cpu_backend(Precision::fp32);
  const auto tokens = make_synthetic_tokens(1, program.header.model.vocabulary);
  std::vector<ModelShard::HeldBlock> held;
  const auto blocks = static_cast<int>(program.header.blocks.size());
  for (int b = 0; b < blocks; ++b) held.push_back({{b}});
  ModelShard shard(*backend, program.header, held);
  shard.initialize();
  SilentGroup group;
  const std::size_t length = program.header.sequence_length;
  const std::size_t samples = size;
  double best = std::numeric_limits<double>::infinity();
  for (int r = 0; r < repeats; ++r) {
    const double begin = clock();
    shard.clear_gradients();
    for (int m = 0; m < micro_batches; ++m) {
      std::vector<std::int32_t> inputs(samples * length);
      std::vector<std::int32_t> targets(samples * length);
      std::vector<std::int32_t> one(length + 1);
      for (std::size_t i = 0; i < samples; ++i) {
        tokens->sample(m * size + static_cast<int>(i), one);
        std::copy(one.begin(), one.end() - 1, inputs.begin() + static_cast<long>(i * length));
        std::copy(one.begin() + 1, one.end(), targets.begin() + static_cast<long>(i * length));
      }
      const MicroBatch batch = {size, inputs, targets};
      std::vector<KeptPointer> kept;
      std::vector<double> losses;
      Tensor x;
      for (int s = 0; s < stages; ++s) {
        Tensor out;
        kept.push_back(shard.forward({blocks * s / stages}, {blocks * (s + 1) / stages - 1}, batch,
                                     x, ir::Recompute::none, group, out, losses));
        x = out;
      }
      Tensor gradient;
      for (int s = stages - 1; s >= 0; --s) {
        Tensor out;
        shard.backward(ir::Pass::backward, {blocks * s / stages}, {blocks * (s + 1) / stages - 1},
                       batch, kept[s], gradient, 1, group, out);
        gradient = out;
      }
    }
    for (int b = 0; b < blocks; ++b) {
      for (HeldParameter& p : shard.parameters({b})) {
        AdamStep adam;
        adam.step = 1;
        backend->adam(adam, p.gradient, p.master, p.first_moment, p.second_moment, p.weight);
      }
    }
    best = std::min(best, clock() - begin);
  }
  return best;
}

/// Steps of all ranks in threads of this process; seconds of `clock` on rank 0's thread, the best.
double executed(const ir::Program& program, int repeats, const std::function<double()>& clock) {
  double best = std::numeric_limits<double>::infinity();
  const int ranks = static_cast<int>(program.ranks.size());
  const auto tokens = make_synthetic_tokens(1, program.header.model.vocabulary);
  const auto errors = run_mesh(ranks == 1 ? "threads" : "tcp", ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Precision::fp32);
    Worker worker(program, *backend, transport, *tokens, {});
    worker.shard().initialize();
    for (int step = 1; step <= repeats; ++step) {
      const double begin = clock();
      worker.step(step);
      if (transport.rank() == 0) best = std::min(best, clock() - begin);
    }
  });
  if (const std::string problem = first_error(errors); !problem.empty()) {
    fmt::print(stderr, "executor_bench: {}\n", problem);
    std::exit(1);
  }
  return best;
}

bool line(const std::string& what, double value, double target, const char* unit, double scale) {
  const bool met = value <= target;
  fmt::print("{:<52}{:>8.2f} {:<4} target {:>6.2f}   ratio {:>6.3f} {}\n", what, value * scale,
             unit, target * scale, value / target, met ? "met" : "MISSED");
  return met;
}

bool measure_overhead(int stages, int repeats) {
  constexpr int kMicroBatches = 256;
  const ir::Program program = lowered(llama(1, 8, 8, 2), stages, kMicroBatches, 1);
  const auto clock = stages == 1 ? wall : process_cpu;
  const double with = executed(program, repeats, clock);
  const double without = bare(program, stages, kMicroBatches, 1, repeats, clock);
  const auto ops = static_cast<double>(program.ops.size());
  fmt::print("{} ranks, {} ops: {:.2f} us an op executed, {:.2f} us bare\n", stages, ops,
             1e6 * with / ops, 1e6 * without / ops);
  return line(stages == 1 ? "overhead per op, one rank (wall)"
                          : "overhead per op, two ranks over TCP (processor)",
              (with - without) / ops, kOverheadTarget, "us", 1e6);
}

/// Bytes of the run log's files.
std::size_t written(const ir::Program& program, const GenerationTracker& record) {
  const ir::RunLog log = record.log();
  std::ostringstream timeline;
  ir::TimelineNames names;
  names.device = [](DeviceId id) { return std::to_string(id.value); };
  names.node_of = [](DeviceId) { return NodeId{0}; };
  names.node = [](NodeId) { return std::string("node"); };
  ir::write_perfetto(program, log, names, timeline);
  return ir::serialize(log).size() + timeline.str().size();
}

bool measure_log(int repeats) {
  const ir::Program program = lowered(llama(4, 64, 256, 64), 1, 8, 2);
  const StoreServer server(Listener("", 0), "t");
  StoreClient client({"127.0.0.1", server.port()}, "t");
  GenerationTracker record(program, 0, {0}, 0);
  double step_time = std::numeric_limits<double>::infinity();
  double text_time = step_time;
  double store_time = step_time;
  double read_time = step_time;
  const auto tokens = make_synthetic_tokens(1, program.header.model.vocabulary);
  run_mesh("threads", 1, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Precision::fp32);
    Worker worker(program, *backend, transport, *tokens, {});
    worker.shard().initialize();
    for (int step = 1; step <= repeats; ++step) {
      double begin = wall();
      StepResult result = worker.step(step);
      step_time = std::min(step_time, wall() - begin);
      begin = thread_cpu();
      const std::string text = to_text(
          StepReport{step, result.start_ns, result.end_ns, result.peak_bytes,
                     std::move(result.losses), std::move(result.spans), std::move(result.memory)});
      text_time = std::min(text_time, thread_cpu() - begin);
      begin = process_cpu();
      const std::string key = fmt::format("g/0/out/step/{:012d}/{:06d}", step, 0);
      client.set(key, text);
      const auto got = client.list("g/0/out/");
      client.remove(key);
      store_time = std::min(store_time, process_cpu() - begin);
      begin = thread_cpu();
      record.take(fmt::format("step/{}/0", step), got.begin()->second);
      record.take_finished();
      read_time = std::min(read_time, thread_cpu() - begin);
    }
  });
  const double begin = thread_cpu();
  const std::size_t bytes = written(program, record);
  const double file_time = (thread_cpu() - begin) / repeats;
  fmt::print(
      "log of a step of {:.2f} ms, {} ops: text {:.1f} us, store {:.1f} us, reading {:.1f} us, "
      "files {:.1f} us ({} bytes)\n",
      1e3 * step_time, program.ops.size(), 1e6 * text_time, 1e6 * store_time, 1e6 * read_time,
      1e6 * file_time, bytes / repeats);
  const bool rank =
      line("log writing in the rank, share of a step", text_time / step_time, kLogTarget, "%", 100);
  return line("log writing in all, share of a step",
              (text_time + store_time + read_time + file_time) / step_time, kLogTarget, "%", 100) &&
         rank;
}

}  // namespace
}  // namespace orrery::executor

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  bool met = orrery::executor::measure_overhead(1, repeats);
  met = orrery::executor::measure_overhead(2, repeats) && met;
  met = orrery::executor::measure_log(repeats) && met;
  return met ? 0 : 1;
}
