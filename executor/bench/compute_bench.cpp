#include "executor/bench/compute_bench.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "executor/engine/data.h"
#include "executor/engine/worker.h"
#include "executor/model/shard.h"
#include "executor/net/thread_transport.h"
#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/ir/op_traits.h"

namespace orrery::executor {
namespace {

using ir::BlockKind;
using ir::Measurement;
using ir::MeasurementKind;
using ir::Pass;

/// Random numbers are drawn for this many elements and repeated.
constexpr std::size_t kTile = 1 << 16;
/// Half widths of uniform distributions: standard deviations of 0.02 (weights) and 1.
constexpr double kWeights = 0.0346;
constexpr double kActivations = 1.732;
/// Ops of the program that does nothing.
constexpr int kEmptyOps = 1000;

}  // namespace

ir::ProgramHeader bench_header(const BenchModel& model, int layers) {
  ir::ProgramHeader header;
  header.model = model.shape;
  header.model.layers = layers;
  header.blocks.assign(layers + 2, BlockKind::transformer);
  header.blocks.front() = BlockKind::embedding;
  header.blocks.back() = BlockKind::head;
  header.sequence_length = model.sequence_length;
  header.global_batch = 1;
  header.dtype = model.dtype;
  // Without moments: the shard's own optimizer states are not used.
  header.optimizer = ir::Optimizer::sgd;
  return header;
}

ir::Program empty_program(const BenchModel& model, int ops) {
  ir::Program program;
  program.header = bench_header(model, 1);
  program.pipelines = {{0, 1, 1}};
  ir::Rank rank;
  rank.device = DeviceId{0};
  rank.devices = {rank.device};
  program.ranks = {rank};
  program.resident = {{}};
  ir::Op op;
  op.kind = ir::OpKind::optimizer_step;
  op.rank = RankId{0};
  program.ops.assign(ops, op);
  const auto count = static_cast<std::uint32_t>(ops);
  program.stream_begin = {0, count, count, count};
  program.dependency_begin.assign(ops + 1, 0);
  return program;
}

class ComputeBench::Impl {
 public:
  Impl(Backend& backend, const BenchModel& model, BenchClock& clock)
      : backend_(backend), model_(model), clock_(clock) {
    weights_ = make_tile(kWeights, 1);
    activations_ = make_tile(kActivations, 2);
  }

  void run(const BenchCase& one, const SamplingRule& rule, const std::vector<Measurement>& before,
           const BenchSink& sink) {
    switch (one.key.kind) {
      case MeasurementKind::block:
        return time_block(one, rule, before, sink);
      case MeasurementKind::gemm:
        return time_gemm(one, rule, before, sink);
      case MeasurementKind::memory_bandwidth:
        return time_copy(one, rule, before, sink);
      case MeasurementKind::optimizer:
        return time_optimizer(one, rule, before, sink);
      case MeasurementKind::memory:
        if (before.empty()) sink.sample(kept_memory(one.key));
        return;
      case MeasurementKind::op_overhead:
        return time_empty_ops(one, rule, before, sink);
      default:
        ORRERY_CHECK(false, "a case of kind {} is none of compute", static_cast<int>(one.key.kind));
    }
  }

 private:
  /// The micro-batch of a case, and what its passes read and write.
  struct PassData {
    BlockId first;
    BlockId last;
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    MicroBatch batch;
    Tensor input;
    Tensor d_output;
    Tensor output;
    Tensor d_input;
    KeptPointer kept;
    std::vector<double> losses;
  };

  Tensor make_tile(double half_width, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<std::byte> bytes(kTile * backend_.element_bytes(true));
    const bool fp64 = backend_.element_bytes(true) == sizeof(double);
    for (std::size_t i = 0; i < kTile; ++i) {
      const double value = half_width * (2 * rng.uniform() - 1);
      const auto narrow = static_cast<float>(value);
      if (fp64) {
        std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
      } else {
        std::memcpy(bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
      }
    }
    Tensor tile = backend_.allocate(kTile, true);
    backend_.upload(bytes, tile);
    return tile;
  }

  void fill(const Tensor& tensor, const Tensor& tile) {
    for (std::size_t at = 0; at < tensor.elements; at += kTile) {
      const std::size_t end = std::min(at + kTile, tensor.elements);
      backend_.copy(part(tile, 0, end - at), part(tensor, at, end));
    }
  }

  Tensor random_tensor(std::size_t elements, bool wide, const Tensor& tile) {
    Tensor tensor = backend_.allocate(elements, wide);
    fill(tensor, tile);
    return tensor;
  }

  /// The first member's slices of embedding, at least this many layers, and head.
  ModelShard& shard(int degree, int layers) {
    if (shard_ != nullptr && degree == degree_ && layers <= layers_) return *shard_;
    shard_.reset();
    const ir::ProgramHeader header = bench_header(model_, layers);
    std::vector<ModelShard::HeldBlock> held;
    for (int b = 0; b < layers + 2; ++b) held.push_back({BlockId{b}, degree, 0});
    shard_ = std::make_unique<ModelShard>(backend_, header, held);
    degree_ = degree;
    layers_ = layers;
    for (const ModelShard::HeldBlock& one : held) {
      for (HeldParameter& parameter : shard_->parameters(one.block)) {
        if (parameter.info.split_length == 0) {
          backend_.fill(parameter.master, 1);
        } else {
          fill(parameter.master, weights_);
        }
        if (parameter.weight.memory != parameter.master.memory) {
          backend_.copy(parameter.master, parameter.weight);
        }
        backend_.fill(parameter.gradient, 0);
      }
    }
    backend_.synchronize();
    return *shard_;
  }

  PassData make_data(const Measurement& key, ModelShard& held) {
    PassData data;
    const bool layer = key.block == BlockKind::transformer;
    const bool head = key.block == BlockKind::head;
    data.first = BlockId{layer ? 1 : head ? layers_ + 1 : 0};
    data.last = BlockId{layer ? key.layers : data.first.value};
    const auto rows = as_size(key.micro_batch_size) * as_size(key.sequence_length);
    Rng rng(3);
    for (std::size_t i = 0; i <= rows; ++i) {
      const std::int64_t token = rng.integer(0, model_.shape.vocabulary - 1);
      if (i < rows) data.tokens.push_back(static_cast<std::int32_t>(token));
      if (i > 0) data.targets.push_back(static_cast<std::int32_t>(token));
    }
    data.batch.samples = key.micro_batch_size;
    const std::size_t size = rows * as_size(model_.shape.hidden);
    if (key.block != BlockKind::embedding) {
      data.input = random_tensor(size, false, activations_);
    }
    if (!head) data.d_output = random_tensor(size, false, weights_);
    held.backend().synchronize();
    return data;
  }

  void forward(ModelShard& held, const Measurement& key, PassData& data) {
    SilentGroup group(key.tensor_parallel);
    data.batch.tokens = data.tokens;
    data.batch.targets = data.targets;
    data.losses.clear();
    data.kept = held.forward(data.first, data.last, data.batch, data.input, key.recompute, group,
                             data.output, data.losses);
  }

  void backward(ModelShard& held, const Measurement& key, Pass pass, PassData& data) {
    SilentGroup group(key.tensor_parallel);
    const double scale = 1.0 / static_cast<double>(data.tokens.size());
    held.backward(pass, data.first, data.last, data.batch, data.kept, data.d_output, scale, group,
                  data.d_input);
  }

  void sample(const BenchCase& one, TimedWork work, const SamplingRule& rule,
              const std::vector<Measurement>& before, const BenchSink& sink) {
    work.synchronize = [this] { backend_.synchronize(); };
    // With a GPU the thread only waits.
    work.computes = work.computes && backend_.on_host();
    take_samples(one.key, work, rule, before, clock_, sink.sample, sink.check);
  }

  void time_block(const BenchCase& one, const SamplingRule& rule,
                  const std::vector<Measurement>& before, const BenchSink& sink) {
    if (Sampler(rule, before).done()) return;
    const Measurement& key = one.key;
    ModelShard& held = shard(key.tensor_parallel, std::max(key.layers, 1));
    PassData data = make_data(key, held);
    TimedWork work;
    work.slowdown = one.slowdown;
    if (key.pass == Pass::forward) {
      work.prepare = [&] { data.kept.reset(); };
      work.repeatable = true;
      work.run = [&](int runs) {
        for (int i = 0; i < runs; ++i) forward(held, key, data);
      };
    } else {
      work.prepare = [&] {
        data.kept.reset();
        forward(held, key, data);
        if (!ir::traits(key.pass).input_gradients) backward(held, key, Pass::backward_input, data);
      };
      work.run = [&](int) { backward(held, key, key.pass, data); };
    }
    sample(one, work, rule, before, sink);
  }

  void time_gemm(const BenchCase& one, const SamplingRule& rule,
                 const std::vector<Measurement>& before, const BenchSink& sink) {
    const auto size = [](std::int64_t rows, std::int64_t columns) {
      return as_size(rows * columns);
    };
    const Measurement& key = one.key;
    const Tensor a = random_tensor(size(key.m, key.k), false, activations_);
    const Tensor b = random_tensor(size(key.n, key.k), false, weights_);
    const Tensor c = backend_.allocate(size(key.m, key.n), false);
    TimedWork work;
    work.repeatable = true;
    work.slowdown = one.slowdown;
    work.run = [&](int runs) {
      for (int i = 0; i < runs; ++i) {
        // As the model multiplies activations by weights.
        backend_.gemm(false, true, static_cast<int>(key.m), static_cast<int>(key.n),
                      static_cast<int>(key.k), 1, a, b, 0, c);
      }
    };
    sample(one, work, rule, before, sink);
  }

  void time_copy(const BenchCase& one, const SamplingRule& rule,
                 const std::vector<Measurement>& before, const BenchSink& sink) {
    const std::size_t elements =
        static_cast<std::size_t>(one.key.bytes.value) / backend_.element_bytes(false);
    const Tensor from = random_tensor(elements, false, activations_);
    const Tensor to = random_tensor(elements, false, weights_);
    TimedWork work;
    work.repeatable = true;
    work.slowdown = one.slowdown;
    work.run = [&](int runs) {
      for (int i = 0; i < runs; ++i) backend_.copy(from, to);
    };
    sample(one, work, rule, before, sink);
  }

  void time_optimizer(const BenchCase& one, const SamplingRule& rule,
                      const std::vector<Measurement>& before, const BenchSink& sink) {
    const auto elements = static_cast<std::size_t>(one.key.parameters);
    const Tensor gradient = random_tensor(elements, true, weights_);
    const Tensor master = random_tensor(elements, true, weights_);
    const Tensor first = random_tensor(elements, true, weights_);
    const Tensor second = backend_.allocate(elements, true);
    backend_.fill(second, 1);
    const bool rounded = backend_.element_bytes(false) != backend_.element_bytes(true);
    Tensor weight = rounded ? backend_.allocate(elements, false) : master;
    weight.wide = false;
    TimedWork work;
    work.repeatable = true;
    work.slowdown = one.slowdown;
    work.run = [&](int runs) {
      for (int i = 0; i < runs; ++i) {
        backend_.adam({}, gradient, master, first, second, weight);
      }
    };
    sample(one, work, rule, before, sink);
  }

  /// What stays allocated between forward and backward, the input of the pass among it.
  Measurement kept_memory(Measurement key) {
    ModelShard& held = shard(key.tensor_parallel, std::max(key.layers, 1));
    if (!backend_.on_host()) {  // Tables that a GPU's first pass leaves for all later ones.
      PassData first = make_data(key, held);
      first.d_output = {};
      forward(held, key, first);
    }
    const std::size_t before = backend_.allocated();
    PassData data = make_data(key, held);
    data.d_output = {};
    forward(held, key, data);
    data.output = {};
    backend_.synchronize();
    key.bytes = Bytes{static_cast<double>(backend_.allocated() - before)};
    return key;
  }

  void time_empty_ops(const BenchCase& one, const SamplingRule& rule,
                      const std::vector<Measurement>& before, const BenchSink& sink) {
    const ir::Program program = empty_program(model_, kEmptyOps);
    const auto transport = std::move(make_thread_transports(1).front());
    const auto tokens = make_synthetic_tokens(0, model_.shape.vocabulary);
    WorkerOptions options;
    // As every op of an emulated slower device, these sleep; what that costs belongs to them.
    options.slowdown = one.slowdown;
    Worker worker(program, backend_, *transport, *tokens, options);
    std::int64_t step = 0;
    TimedWork work;
    work.parts = kEmptyOps;
    work.computes = one.slowdown <= 1;
    work.run = [&](int) { worker.step(++step); };
    sample(one, work, rule, before, sink);
  }

  Backend& backend_;
  BenchModel model_;
  BenchClock& clock_;
  Tensor weights_;
  Tensor activations_;
  std::unique_ptr<ModelShard> shard_;
  int degree_ = 0;
  int layers_ = 0;
};

ComputeBench::ComputeBench(Backend& backend, const BenchModel& model, BenchClock& clock)
    : impl_(std::make_unique<Impl>(backend, model, clock)) {}
ComputeBench::~ComputeBench() = default;

void ComputeBench::run(const BenchCase& one, const SamplingRule& rule,
                       const std::vector<Measurement>& before, const BenchSink& sink) {
  impl_->run(one, rule, before, sink);
}

}  // namespace orrery::executor
