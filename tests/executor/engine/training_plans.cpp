#include "tests/executor/engine/training_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "executor/net/ring.h"
#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/lower/lower.h"
#include "models/schedule/schedule.h"
#include "models/spec/job.h"
#include "tests/executor/net/meshes.h"
#include "tests/models/lower/random_plan.h"
#include "tests/worlds/clusters.h"

namespace orrery::executor {
namespace {

constexpr int kMostDevices = 8;

std::vector<int> cut(int total, int parts, Rng& rng) {
  std::vector<int> out(parts, 1);
  for (int i = 0; i < total - parts; ++i) {
    ++out[rng.integer(0, parts - 1)];
  }
  return out;
}

class PlanMaker {
 public:
  PlanMaker(std::uint64_t seed, const models::Workload& workload)
      : rng_(seed), even_(seed % 2 == 0), blocks_(workload.size()) {}

  ir::Plan make() {
    const auto schedules = models::schedules();
    plan_.schedule = schedules[as_size(integer(0, static_cast<int>(schedules.size()) - 1))]->kind;
    if (models::schedule_entry(plan_.schedule).uses_chunks) plan_.virtual_stages = 2;
    both_ways_ = models::schedule_entry(plan_.schedule).both_ways;
    plan_.communication.activation_transfer = rng_.bernoulli(0.5)
                                                  ? ir::ActivationTransfer::leader_broadcast
                                                  : ir::ActivationTransfer::sliced;
    plan_.communication.gradient_overlap = rng_.bernoulli(0.5);
    if (rng_.bernoulli(0.5)) plan_.communication.bucket = Bytes{4000};
    zero_.stage = integer(0, 1);
    if (zero_.stage == 1 && even_) zero_.stage = 2;
    if (rng_.bernoulli(0.5)) zero_.shard_group = integer(1, 2);
    // Fed from both ends: a pipeline of two stages takes the whole batch.
    const int pipelines = both_ways_ ? 1 : integer(1, 3);
    const bool copies = pipelines > 1 && rng_.bernoulli(0.4);
    std::vector<int> shares = cut(kTinyBatch, pipelines, rng_);
    for (int p = 0; p < pipelines; ++p) {
      if (copies) {
        shares.assign(shares.size(), kTinyBatch / pipelines);
        budget_ = kMostDevices / pipelines;
      } else {
        budget_ = (kMostDevices - devices_) / (pipelines - p);
      }
      if (p > 0 && copies) {
        copy_first();
      } else {
        add_pipeline(shares[p]);
      }
    }
    if (copies) add_reroutes();
    plan_.communication.parameter_overlap =
        plan_.communication.gradient_overlap && rng_.bernoulli(0.5);
    if (rng_.fork(1).bernoulli(0.5)) models::draw_state_weights(plan_, rng_.fork(2));
    return std::move(plan_);
  }

 private:
  int integer(int low, int high) { return static_cast<int>(rng_.integer(low, high)); }

  void add_pipeline(int share) {
    ir::Pipeline pipeline;
    std::vector<int> sizes;
    for (int size = 1; size <= 4; ++size) {
      const bool even = share % (2 * size) == 0 && share / size >= 4;
      if (both_ways_ ? even : share % size == 0) sizes.push_back(size);
    }
    pipeline.micro_batch_size = sizes[integer(0, static_cast<int>(sizes.size()) - 1)];
    pipeline.micro_batches = share / pipeline.micro_batch_size;
    const int chunks = plan_.virtual_stages;
    const int stages = both_ways_ ? 2 : integer(1, std::min({4, budget_, blocks_ / chunks}));
    int left = budget_;
    for (int s = 0; s < stages; ++s) {
      const int most = left - (stages - s - 1);
      pipeline.stages.push_back(stage(most, pipeline.micro_batch_size));
      left -= static_cast<int>(devices_of(pipeline.stages.back()).size());
    }
    int first = 0;
    const models::ScheduleEntry& schedule = models::schedule_entry(plan_.schedule);
    std::vector<int> counts = cut(blocks_, both_ways_ ? stages : stages * chunks, rng_);
    if (both_ways_) counts.insert(counts.end(), {counts[0], counts[1]});
    for (int i = 0; i < stages * chunks; ++i) {
      if (both_ways_ && i == stages) first = 0;
      ir::Stage& at = pipeline.stages[as_size(schedule.stage_at(i / stages, i % stages, stages))];
      if (i >= stages) at.segments.push_back(at.segments.front());
      ir::Segment& segment = at.segments.back();
      segment.virtual_stage = i / stages;
      segment.first_block = {first};
      first += counts[i];
      segment.last_block = {first - 1};
      segment.recompute = static_cast<ir::Recompute>(integer(0, 2));
    }
    if (chunks == 1 && rng_.bernoulli(0.3)) split_a_stage(pipeline);
    plan_.pipelines.push_back(std::move(pipeline));
  }

  /// A stage whose strategy changes inside it, where it has two blocks.
  void split_a_stage(ir::Pipeline& pipeline) {
    for (ir::Stage& at : pipeline.stages) {
      ir::Segment second = at.segments.front();
      if (second.first_block == second.last_block) continue;
      at.segments.front().last_block = second.first_block;
      ++second.first_block.value;
      const std::vector<DeviceId> devices = devices_of(at);
      const auto count = static_cast<int>(devices.size());
      if (second.groups.size() > 1 && std::has_single_bit(static_cast<unsigned>(count))) {
        ir::Group all;
        all.devices = devices;
        all.tensor_parallel = count;
        all.samples = pipeline.micro_batch_size;
        second.groups = {all};
      }
      at.segments.push_back(std::move(second));
      return;
    }
  }

  ir::Stage stage(int most_devices, int samples) {
    ir::Segment segment;
    segment.zero = zero_;
    int left = most_devices;
    const int groups = integer(1, std::min({2, samples, most_devices}));
    const std::vector<int> shares = cut(samples, groups, rng_);
    for (int g = 0; g < groups; ++g) {
      ir::Group group;
      group.samples = shares[g];
      const int most = left - (groups - g - 1);
      int steps = 0;  // Doublings that the devices allow.
      while (steps < 3 && (2 << steps) <= most) ++steps;
      group.tensor_parallel = 1 << integer(0, steps);
      left -= group.tensor_parallel;
      for (int i = 0; i < group.tensor_parallel; ++i) group.devices.push_back({devices_++});
      segment.groups.push_back(std::move(group));
    }
    return {{segment}};
  }

  void copy_first() {
    ir::Pipeline copy = plan_.pipelines.front();
    const int base = devices_;
    for (ir::Stage& stage : copy.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) {
            device.value += base;
            devices_ = std::max(devices_, device.value + 1);
          }
        }
      }
    }
    plan_.pipelines.push_back(std::move(copy));
  }

  /// Some micro-batches of the first pipeline pass a stage of the second one.
  void add_reroutes() {
    ir::Pipeline& from = plan_.pipelines.front();
    const int stage = integer(0, static_cast<int>(from.stages.size()) - 1);
    for (int m = 0; m + 1 < from.micro_batches; ++m) {
      if (rng_.bernoulli(0.5)) from.reroutes.push_back({stage, m, 1});
    }
  }

  bool both_ways_ = false;  ///< models::ScheduleEntry::both_ways
  Rng rng_;
  bool even_;
  int blocks_;
  int devices_ = 0;
  int budget_ = kMostDevices;
  ir::Zero zero_;
  ir::Plan plan_;
};

/// Elements of a tensor as doubles.
std::vector<double> host(Backend& backend, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.elements * backend.element_bytes(tensor.wide));
  backend.download(tensor, bytes);
  std::vector<double> out(tensor.elements);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t width = backend.element_bytes(tensor.wide);
    if (width == 8) {
      std::memcpy(&out[i], bytes.data() + 8 * i, 8);
    } else if (width == 2) {  // bf16: the upper half of an fp32 number.
      std::uint16_t half = 0;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      out[i] = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
    } else {
      float value = 0;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      out[i] = value;
    }
  }
  return out;
}

/// Whether a step begins with gathers of what the one before has updated.
bool gathers_first(const ir::Program& program) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(program.ops.size()); ++i) {
    if (models::is_first_gather(program, {i})) return true;
  }
  return false;
}

/// What all ranks together say.
class Collector {
 public:
  void take(Worker& worker, bool gradients, Numbers& into) {
    const std::lock_guard lock(mutex_);
    for (const BlockId block : worker.blocks()) {
      for (const Worker::Owned& range : worker.owned(block)) {
        const HeldParameter& held = worker.shard().parameters(block)[range.parameter];
        put(worker.shard().backend(), held, range.begin, range.end,
            gradients ? held.units(held.gradient, range.begin, range.end)
                      : held.weight_units(range.begin, range.end),
            into[{block.value, range.parameter}]);
      }
    }
  }

  /// All weights that the rank holds, but for those that the next step brings, against what the
  /// owners have.
  void compare(Worker& worker, int rank, bool brings, TrainingRun& run) {
    const std::lock_guard lock(mutex_);
    for (const BlockId block : worker.blocks()) {
      const auto& all = worker.shard().parameters(block);
      for (std::size_t p = 0; p < all.size(); ++p) {
        if (all[p].sharded) continue;  // Nothing but what it owns.
        if (all[p].tied) continue;     // Compared as the embedding's.
        const auto& whole = run.weights.at({block.value, static_cast<int>(p)});
        const std::vector<double> mine = host(worker.shard().backend(), all[p].weight);
        std::vector<UnitRange> owned;
        for (const Worker::Owned& range : worker.owned(block)) {
          if (range.parameter == static_cast<int>(p)) owned.push_back({range.begin, range.end});
        }
        const auto current = [&](std::size_t at) {
          const auto unit = static_cast<std::int64_t>(at) / all[p].info.unit;
          return !brings || std::any_of(owned.begin(), owned.end(), [&](const UnitRange& range) {
            return range.begin <= unit && unit < range.end;
          });
        };
        std::size_t i = 0;
        for (const UnitRange& slice : all[p].slices) {
          const std::size_t end = as_size(slice.end * all[p].info.unit);
          for (std::size_t at = as_size(slice.begin * all[p].info.unit); at < end; ++at, ++i) {
            if (mine[i] == whole[at] || !current(at)) continue;
            run.disagreement = fmt::format("rank {} block {} parameter {} element {}: {} is not {}",
                                           rank, block.value, p, at, mine[i], whole[at]);
          }
        }
      }
    }
  }

 private:
  static void put(Backend& backend, const HeldParameter& held, std::int64_t begin, std::int64_t end,
                  const Tensor& tensor, std::vector<double>& whole) {
    whole.resize(held.info.elements(), std::numeric_limits<double>::quiet_NaN());
    const std::vector<double> values = host(backend, tensor);
    for (std::int64_t i = begin * held.info.unit; i < end * held.info.unit; ++i) {
      whole[i] = values[as_size(i - begin * held.info.unit)];
    }
  }

  std::mutex mutex_;
};

}  // namespace

models::Workload tiny_workload(const TinyModel& model) {
  ir::ModelShape shape;
  shape.name = "tiny";
  shape.layers = model.layers;
  shape.hidden = 32;
  shape.heads = 8;
  shape.kv_heads = 4;
  shape.head_dim = 4;
  shape.ffn = 48;
  shape.vocabulary = 96;
  shape.activation = model.activation;
  shape.tied_embeddings = model.tied_embeddings;
  if (model.experts > 0) {
    shape.experts = model.experts;
    shape.top_k = 2;
    shape.capacity_factor = 1.25;
  }
  if (model.gpt) {
    shape.normalization = ir::Normalization::layer_norm;
    shape.biases = true;
    shape.positions = static_cast<int>(model.sequence_length) + 2;
  }
  return models::build_workload(shape, model.sequence_length, ir::Dtype::fp32);
}

ir::Plan random_training_plan(std::uint64_t seed, const models::Workload& workload) {
  return PlanMaker(seed, workload).make();
}

ir::Plan divided_training_plan(std::uint64_t seed, const models::Workload& workload) {
  ir::Plan plan = random_training_plan(seed, workload);
  Rng rng = Rng(seed).fork(1);
  // By the first devices of segments: all that a rank holds is divided alike.
  std::map<DeviceId, bool> sequence;
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          if (group.tensor_parallel == 1 || group.tensor_parallel > workload.sequence_length) {
            continue;
          }
          const auto [known, fresh] = sequence.try_emplace(group.devices.front(), false);
          if (fresh) known->second = rng.bernoulli(0.7);
          if (known->second) group.sequence = ir::SequenceParallelism::megatron;
        }
        // Groups that exchange alike may hold experts together.
        const std::size_t count = segment.groups.size();
        const ir::Group& first = segment.groups.front();
        const bool alike =
            std::all_of(segment.groups.begin(), segment.groups.end(), [&](const ir::Group& group) {
              return group.samples == first.samples &&
                     group.tensor_parallel == first.tensor_parallel;
            });
        bool has_experts = false;
        for (const BlockId block : ids_from_to(segment.first_block, segment.last_block)) {
          has_experts = has_experts || workload.block(block).kind == ir::BlockKind::moe;
        }
        if (has_experts && alike && count > 1 &&
            workload.shape.experts % static_cast<int>(count) == 0) {
          segment.expert_parallel = static_cast<int>(count);
          for (ir::Group& group : segment.groups) group.sequence = first.sequence;
        }
      }
    }
  }
  // Reroutes go between pipelines that divide their stages alike.
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Reroute& reroute : pipeline.reroutes) {
      const ir::Stage& other =
          plan.pipelines[as_size(reroute.to_pipeline)].stages[as_size(reroute.stage)];
      const ir::Stage& own = pipeline.stages[as_size(reroute.stage)];
      for (std::size_t s = 0; s < own.segments.size(); ++s) {
        for (std::size_t g = 0; g < own.segments[s].groups.size(); ++g) {
          pipeline.stages[as_size(reroute.stage)].segments[s].groups[g].sequence =
              other.segments[s].groups[g].sequence;
        }
      }
    }
  }
  return plan;
}

ir::Plan single_device_plan(const models::Workload& workload, int size) {
  ir::Plan plan = pipeline_plan(workload, 1, ir::ScheduleKind::one_f_one_b);
  plan.pipelines[0].micro_batch_size = size;
  plan.pipelines[0].micro_batches = kTinyBatch / size;
  plan.pipelines[0].stages[0].segments[0].groups[0].samples = size;
  return plan;
}

ir::Plan pipeline_plan(const models::Workload& workload, int stages, ir::ScheduleKind schedule,
                       int virtual_stages) {
  ir::Plan plan;
  plan.schedule = schedule;
  plan.virtual_stages = virtual_stages;
  ir::Pipeline pipeline;
  pipeline.micro_batches = kTinyBatch / 2;
  pipeline.micro_batch_size = 2;
  pipeline.stages.resize(stages);
  const int parts = stages * virtual_stages;
  for (int i = 0; i < parts; ++i) {
    ir::Segment segment;
    segment.first_block = {workload.size() * i / parts};
    segment.last_block = {workload.size() * (i + 1) / parts - 1};
    segment.virtual_stage = i / stages;
    ir::Group group;
    const int stage =
        models::schedule_entry(schedule).stage_at(segment.virtual_stage, i % stages, stages);
    group.devices = {{stage}};
    group.samples = 2;
    segment.groups = {group};
    pipeline.stages[as_size(stage)].segments.push_back(segment);
  }
  plan.pipelines = {pipeline};
  return plan;
}

ir::Program lower_for_executor(const ir::Plan& plan, const models::Workload& workload,
                               std::uint64_t seed, int gradient_synchronizations) {
  models::Job job;
  job.gradient_synchronizations = gradient_synchronizations;
  job.global_batch = kTinyBatch;
  job.sequence_length = workload.sequence_length;
  job.dtype = ir::Dtype::fp32;
  models::LowerOptions options;
  options.collapsed = false;
  options.seed = seed;
  return models::lower(plan, worlds::one_node(kMostDevices), workload, job, options);
}

TrainingRun train(ir::Program program, const TrainingOptions& options) {
  if (options.spoil) options.spoil(program);
  for (const auto& problems : {find_unsupported(program), find_unrunnable(program)}) {
    if (!problems.empty()) throw std::runtime_error(problems.front());
  }
  const auto tokens = make_synthetic_tokens(11, program.header.model.vocabulary);
  const int size = static_cast<int>(program.ranks.size());
  TrainingRun run;
  Collector collector;
  std::mutex mutex;
  std::vector<std::vector<SampleLoss>> losses(options.steps);
  const auto barrier = [&](Transport& transport, int number) {
    std::vector<std::byte> none(8);
    RingGroup all{std::vector<int>(size), transport.rank()};
    std::iota(all.ranks.begin(), all.ranks.end(), 0);
    all_reduce(transport, all, ElementType::f64, none,
               {static_cast<std::uint64_t>(900'000 + number), 0, 0});
  };
  const auto errors = run_mesh(options.transport, size, [&](Transport& mesh) {
    const std::unique_ptr<Transport> over = options.over ? options.over(mesh) : nullptr;
    Transport& transport = over ? *over : mesh;
    const auto backend =
        options.backend ? options.backend(transport.rank()) : make_cpu_backend(options.precision);
    Worker worker(program, *backend, transport, *tokens, {});
    worker.shard().initialize();
    for (int step = 1; step <= options.steps; ++step) {
      const StepResult result = worker.step(step);
      if (step == 1) collector.take(worker, true, run.gradients);
      const std::lock_guard lock(mutex);
      auto& all = losses[step - 1];
      all.insert(all.end(), result.losses.begin(), result.losses.end());
    }
    collector.take(worker, false, run.weights);
    barrier(transport, 0);
    collector.compare(worker, transport.rank(), gathers_first(program), run);
    barrier(transport, 1);
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  for (const auto& all : losses) {
    if (static_cast<int>(all.size()) != kTinyBatch) {
      throw std::runtime_error(fmt::format("{} losses for {} samples", all.size(), kTinyBatch));
    }
    run.losses.push_back(mean_loss(all, program.header.sequence_length));
  }
  return run;
}

double relative_distance(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  constexpr double kRounding = 1e-5;
  double largest = 0;
  for (const auto& [key, expected] : b) {
    largest = std::max(largest,
                       std::inner_product(expected.begin(), expected.end(), expected.begin(), 0.0));
  }
  double worst = 0;
  for (const auto& [key, expected] : b) {
    const auto it = a.find(key);
    if (it == a.end() || it->second.size() != expected.size()) {
      return std::numeric_limits<double>::infinity();
    }
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(it->second[i] - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    if (norm < kRounding * kRounding * largest) norm = largest;
    // Not a number compares as larger.
    const double distance = std::sqrt(difference / std::max(norm, 1e-300));
    if (!(distance <= worst)) worst = distance;
  }
  return worst;
}

}  // namespace orrery::executor
