#include "models/check/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/ir/names.h"

namespace orrery::models {
namespace {

/// Ranks in the order of Megatron: tensor parallel first, then data, then pipeline; or pipeline
/// before data. None when some node's ranks do not follow one another.
std::optional<std::vector<NodeRanks>> place(const TrainerPlan& plan, const Cluster& cluster,
                                            bool pipeline_first) {
  std::vector<DeviceId> order;
  const auto add = [&](int replica, int stage) {
    const auto& devices = plan.devices[replica][stage];
    order.insert(order.end(), devices.begin(), devices.end());
  };
  if (pipeline_first) {
    for (int r = 0; r < plan.replicas; ++r) {
      for (int s = 0; s < plan.stages; ++s) add(r, s);
    }
  } else {
    for (int s = 0; s < plan.stages; ++s) {
      for (int r = 0; r < plan.replicas; ++r) add(r, s);
    }
  }
  std::vector<NodeRanks> nodes;
  for (const DeviceId id : order) {
    const Device& device = cluster.device(id);
    if (nodes.empty() || nodes.back().node != device.node) {
      const bool seen = std::any_of(nodes.begin(), nodes.end(),
                                    [&](const NodeRanks& n) { return n.node == device.node; });
      if (seen) return std::nullopt;
      nodes.push_back({device.node, {}});
    }
    nodes.back().gpus.push_back(device.position);
  }
  return nodes;
}

class Reader {
 public:
  Reader(Trainer trainer, const ir::Plan& plan, const Cluster& cluster, const Workload& workload)
      : plan_(plan), cluster_(cluster), workload_(workload), trainer_(trainer) {}

  std::variant<TrainerPlan, std::vector<std::string>> read() {
    if (workload_.shape.layers == 0) {
      refuse(fmt::format("'{}', which is no transformer", workload_.name));
      return reasons_;
    }
    check_model();
    check_plan();
    const ir::Pipeline& first = plan_.pipelines.front();
    out_.stages = static_cast<int>(first.stages.size());
    const ir::Segment& segment = first.stages.front().segments.front();
    const ir::Group& group = segment.groups.front();
    // Trainers know no groups side by side in a stage: each is a replica of its own.
    out_.replicas = static_cast<int>(plan_.pipelines.size() * segment.groups.size());
    out_.micro_batch_size = group.samples;
    out_.recompute = segment.recompute;
    out_.zero = segment.zero.stage;
    out_.shard_group = segment.zero.shard_group;
    out_.ulysses = group.sequence == ir::SequenceParallelism::ulysses;
    out_.expert_parallel = segment.expert_parallel;
    out_.sequence_parallel = group.sequence == ir::SequenceParallelism::megatron;
    if (group.sequence == ir::SequenceParallelism::ulysses ||
        group.sequence == ir::SequenceParallelism::ring) {
      out_.context_parallel = group.sequence_degree;
    }
    out_.layers.assign(first.stages.size() * plan_.virtual_stages, 0);
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) read_pipeline(p);
    check_micro_batches();
    check_sharding();
    check_experts();
    if (trainer_ == Trainer::deepspeed) check_deepspeed();
    if (reasons_.empty()) {
      if (trainer_ == Trainer::flagscale) {
        find_meshes();
      } else if (trainer_ != Trainer::deepspeed) {
        number_ranks();
      }
    }
    if (!reasons_.empty()) return reasons_;
    return out_;
  }

 private:
  /// Each reason once.
  void refuse(std::string reason) {
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) {
      reasons_.push_back(std::move(reason));
    }
  }

  /// How many the schedule takes: Megatron-LM, forward_backward_pipelining_with_interleaving (of
  /// groups as large as the pipeline); PyTorch, ScheduleInterleaved1F1B and PipelineScheduleSingle.
  void check_micro_batches() {
    const int stages = out_.stages;
    const int micro_batches = plan_.pipelines.front().micro_batches;
    const bool torchtitan = trainer_ == Trainer::torchtitan;
    if (plan_.schedule != ir::ScheduleKind::interleaved_one_f_one_b) {
      if (torchtitan && stages > 1 && micro_batches < stages) {
        refuse(fmt::format("{} micro-batches in {} stages: it takes at least one for each",
                           micro_batches, stages));
      }
      return;
    }
    if (trainer_ == Trainer::flagscale) return;  // It has no virtual stages.
    if (stages == 1) return refuse("virtual stages of a single stage: no pipeline to interleave");
    if (trainer_ == Trainer::deepspeed) return;  // Nor pipelines.
    const int rounds = std::max(1, micro_batches / stages);
    if (torchtitan ? micro_batches % rounds != 0 : micro_batches % stages != 0) {
      refuse(fmt::format("{} micro-batches, interleaved in {} stages: it takes a multiple of {}",
                         micro_batches, stages,
                         torchtitan ? fmt::format("the {} rounds", rounds) : "the stages"));
    }
  }

  void check_sharding() {
    if (trainer_ == Trainer::torchtitan) {
      if (out_.zero == 1) {
        refuse("ZeRO-1: FSDP shards gradients, too (ZeRO-2 without, ZeRO-3 with parameters)");
      }
      if (out_.shard_group > 0 && out_.replicas % out_.shard_group != 0) {
        refuse(fmt::format("shards over {} of {} replicas", out_.shard_group, out_.replicas));
      }
      if (out_.ulysses) refuse("Ulysses' sequence parallelism: context parallelism is a ring");
      return;
    }
    if (out_.shard_group != 0) refuse("ZeRO over a part of the replicas");
    if (plan_.optimizer_offload > 0 && out_.zero == 0 && trainer_ != Trainer::flagscale) {
      refuse("optimizer states in host memory without ZeRO: it is an option of sharded ones");
    }
    if (plan_.optimizer_offload > 0 && plan_.optimizer_offload < 1 && out_.zero < 3 &&
        trainer_ == Trainer::deepspeed) {
      refuse("a part of the optimizer states in host memory without ZeRO-3");
    }
    if (trainer_ != Trainer::deepspeed && out_.zero > 1) {
      refuse(fmt::format("ZeRO-{}: the distributed optimizer is ZeRO-1", out_.zero));
    }
  }

  /// Ranks that share experts follow one another among those of data parallelism.
  void check_experts() {
    const bool megatron = trainer_ == Trainer::megatron || trainer_ == Trainer::flagscale;
    if (megatron && workload_.shape.experts > 0 && !out_.sequence_parallel &&
        *std::max_element(out_.tensor_parallel.begin(), out_.tensor_parallel.end()) > 1) {
      refuse("tensor parallelism of experts without Megatron's sequence parallelism");
    }
    if (out_.expert_parallel == 1) return;
    if (megatron && workload_.dtype == ir::Dtype::fp16) refuse("expert parallelism in fp16");
    if (out_.context_parallel > 1) refuse("expert parallelism beside context parallelism");
    if (trainer_ == Trainer::torchtitan && out_.shards() % out_.expert_parallel != 0) {
      refuse(fmt::format("expert parallelism over {} of {} shards: its ranks are some of FSDP's",
                         out_.expert_parallel, out_.shards()));
    }
  }

  void check_deepspeed() {
    if (out_.stages > 1) {
      refuse("pipelines: DeepSpeed cuts them in the model's code (PipelineModule)");
    }
    if (out_.context_parallel > 1 || out_.sequence_parallel) refuse("sequence parallelism");
    if (out_.expert_parallel > 1) {
      refuse("expert parallelism: it is in the model's code (MoE layers)");
    }
  }

  void check_model() {
    const ir::ModelShape& shape = workload_.shape;
    if (shape.mtp_layers > 0) refuse("layers that predict further tokens");
    if (shape.window > 0) refuse("attention to a window of tokens");
    check_precision();
    if (trainer_ == Trainer::megatron || trainer_ == Trainer::flagscale) {
      // pretrain_gpt.py has GELU, SwiGLU and squared ReLU, which model files do not tell from ReLU.
      if (shape.activation == ir::Activation::relu) refuse("ReLU: its GPT has GELU or SwiGLU");
      if (!shape.causal) refuse("attention to later tokens: its GPT is causal");
    }
    if (trainer_ == Trainer::megatron) return;
    if (shape.kv_rank > 0) refuse("latent attention");
    if (shape.shared_ffn > 0) refuse("an expert that all tokens take");
    if (shape.dense_layers > 0 || shape.moe_interval > 1) {
      refuse("layers with experts beside layers without");
    }
  }

  void check_precision() {
    using enum ir::Dtype;
    const ir::Dtype dtype = workload_.dtype;
    const auto only = [&](const char* what) {
      refuse(fmt::format("{}: it trains in {}", ir::name_of(dtype), what));
    };
    switch (trainer_) {
      case Trainer::megatron:
      case Trainer::flagscale:
        if (dtype == fp64) only("fp32, fp16 or bf16, with products in fp8, mxfp8 or fp4");
        break;
      case Trainer::torchtitan:
        if (dtype == fp16 || dtype == fp64 || dtype == fp4) {
          only("bfloat16 or float32, with products in fp8 or mxfp8");
        }
        break;
      case Trainer::deepspeed:
        if (dtype == fp64 || ir::of_products(dtype)) only("fp32, fp16 or bf16");
        break;
    }
  }

  void check_plan() {
    using ir::ScheduleKind;
    const bool torchtitan = trainer_ == Trainer::torchtitan;
    const bool gpipe = torchtitan && plan_.schedule == ScheduleKind::gpipe;
    if (plan_.schedule != ScheduleKind::one_f_one_b && !gpipe &&
        plan_.schedule != ScheduleKind::interleaved_one_f_one_b) {
      refuse(fmt::format("the schedule {}: only 1F1B, interleaved or not{}",
                         ir::name_of(plan_.schedule), torchtitan ? ", and GPipe" : ""));
    }
    if (plan_.redundancy != ir::Redundancy::none) refuse("redundant copies of stages");
    if (plan_.optimizer != ir::OptimizerStart::together) refuse("a staggered optimizer");
    if (trainer_ == Trainer::flagscale && plan_.virtual_stages > 1) refuse("virtual stages");
    if (plan_.communication.parameter_overlap && trainer_ != Trainer::megatron &&
        trainer_ != Trainer::flagscale) {
      refuse("gathers of parameters that overlap with the next iteration (parameter_overlap)");
    }
    const bool offloads = trainer_ == Trainer::megatron || trainer_ == Trainer::deepspeed;
    if (plan_.optimizer_offload > 0 && !offloads) refuse("optimizer states in host memory");
  }

  void read_pipeline(std::size_t p) {
    const ir::Pipeline& pipeline = plan_.pipelines[p];
    const ir::Pipeline& first = plan_.pipelines.front();
    if (!pipeline.reroutes.empty()) refuse("micro-batches that other pipelines compute");
    if (pipeline.length_range) refuse("pipelines for ranges of sequence lengths");
    if (pipeline.micro_batch_size != first.micro_batch_size ||
        pipeline.micro_batches != first.micro_batches) {
      refuse("pipelines with different numbers or sizes of micro-batches");
    }
    if (pipeline.stages.size() != first.stages.size()) {
      return refuse("pipelines with different numbers of stages");
    }
    const std::size_t groups = first.stages.front().segments.front().groups.size();
    std::vector<std::vector<std::vector<DeviceId>>> devices(groups);  // By group and stage.
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const std::vector<ir::Group>& own = pipeline.stages[s].segments.front().groups;
      for (std::size_t g = 0; g < std::min(groups, own.size()); ++g) {
        devices[g].push_back(own[g].devices);
      }
      read_stage(pipeline.stages[s], first.stages[s], p == 0, s);
    }
    for (auto& replica : devices) out_.devices.push_back(std::move(replica));
  }

  void read_stage(const ir::Stage& stage, const ir::Stage& same, bool first_pipeline,
                  std::size_t s) {
    const ir::Segment& model = plan_.pipelines.front().stages.front().segments.front();
    for (std::size_t i = 0; i < stage.segments.size(); ++i) {
      const ir::Segment& segment = stage.segments[i];
      const ir::Group& group = segment.groups.front();
      const bool alike =
          std::all_of(segment.groups.begin(), segment.groups.end(), [&](const ir::Group& other) {
            return other.tensor_parallel == group.tensor_parallel &&
                   other.sequence == group.sequence &&
                   other.sequence_degree == group.sequence_degree &&
                   other.samples == group.samples && other.state_weight == group.state_weight &&
                   other.experts == group.experts;
          });
      if (!alike || segment.groups.size() != model.groups.size()) {
        refuse("tensor-parallel groups of a stage that differ, or are not as many in each");
      }
      const bool aligned = i < same.segments.size() &&
                           segment.first_block == same.segments[i].first_block &&
                           segment.last_block == same.segments[i].last_block;
      if (!aligned) refuse("pipelines whose stages have different layers");
      if (segment.recompute != model.recompute) refuse("recomputation that differs by stage");
      if (segment.recompute == ir::Recompute::experts && trainer_ != Trainer::megatron) {
        refuse("recomputation of experts alone");
      }
      if (segment.zero != model.zero) refuse("ZeRO that differs by stage");
      if (segment.expert_parallel != out_.expert_parallel) {
        refuse("expert parallelism that differs by stage");
      }
      if (group.state_weight != model.groups.front().state_weight) refuse("uneven ZeRO shards");
      const ir::Group& first_group = model.groups.front();
      if (group.sequence != first_group.sequence ||
          group.sequence_degree != first_group.sequence_degree) {
        refuse("sequence or context parallelism that differs by stage");
      }
      check_degree(group.tensor_parallel, first_group.tensor_parallel,
                   same.segments.front().groups.front().tensor_parallel);
      if (first_pipeline) {
        const std::size_t chunk = out_.stages * static_cast<std::size_t>(segment.virtual_stage) + s;
        out_.layers[chunk] += layers_of(segment);
      }
    }
    if (first_pipeline) {
      out_.tensor_parallel.push_back(stage.segments.front().groups.front().tensor_parallel);
    }
  }

  void check_degree(int degree, int of_the_plan, int of_the_stage) {
    if (trainer_ != Trainer::flagscale && degree != of_the_plan) {
      refuse("tensor-parallel degrees that differ by stage (FlagScale's meshes may)");
    }
    if (degree != of_the_stage) refuse("tensor-parallel degrees that differ by pipeline");
  }

  int layers_of(const ir::Segment& segment) const {
    const int first = std::max(segment.first_block.value, workload_.first_layer().value);
    const int last = std::min(segment.last_block.value, workload_.last_layer().value);
    return std::max(0, last - first + 1);
  }

  /// Megatron-LM has another order, but not with context or expert parallelism; torchtitan has
  /// none.
  void number_ranks() {
    auto nodes = place(out_, cluster_, false);
    const bool megatron = trainer_ == Trainer::megatron;
    if (megatron && !nodes && out_.context_parallel == 1 && out_.expert_parallel == 1) {
      nodes = place(out_, cluster_, out_.pipeline_first = true);
    }
    if (!nodes) {
      return refuse(
          fmt::format("this placement: ranks are numbered tensor parallel, data, pipeline{}, and "
                      "those of a node must follow one another",
                      megatron ? " (or tensor, pipeline, data)" : ""));
    }
    out_.nodes = *nodes;
  }

  void find_meshes() {
    for (int s = 0; s < out_.stages; ++s) {
      const std::string& gpu = cluster_.gpu(out_.devices.front()[s].front()).name;
      for (const auto& replica : out_.devices) {
        for (const DeviceId device : replica[s]) {
          if (cluster_.gpu(device).name != gpu) {
            refuse(fmt::format("stage {} has GPUs of several types: a mesh has one", s));
          }
        }
      }
      if (out_.meshes.empty() || out_.meshes.back().tensor_parallel != out_.tensor_parallel[s] ||
          out_.meshes.back().gpu != gpu) {
        out_.meshes.push_back({out_.tensor_parallel[s], 0, gpu});
      }
      ++out_.meshes.back().stages;
    }
  }

  const ir::Plan& plan_;
  const Cluster& cluster_;
  const Workload& workload_;
  Trainer trainer_;
  TrainerPlan out_;
  std::vector<std::string> reasons_;
};

}  // namespace

std::vector<std::pair<Trainer, const char*>> enum_names(Trainer) {
  return {{Trainer::megatron, "megatron"},
          {Trainer::flagscale, "flagscale"},
          {Trainer::torchtitan, "torchtitan"},
          {Trainer::deepspeed, "deepspeed"}};
}

std::variant<TrainerPlan, std::vector<std::string>> in_terms_of(Trainer trainer,
                                                                const ir::Plan& plan,
                                                                const Cluster& cluster,
                                                                const Workload& workload) {
  return Reader(trainer, plan, cluster, workload).read();
}

namespace {

/// The executor has Megatron's sequence parallelism alone, and holds tied embeddings whole.
std::vector<std::string> executor_reasons(const ir::Plan& plan, const Workload& workload) {
  bool gathered = false, lengthwise = false;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        gathered |= segment.zero.stage == 3 && workload.shape.tied_embeddings;
        for (const ir::Group& group : segment.groups) {
          lengthwise |= group.sequence == ir::SequenceParallelism::ulysses ||
                        group.sequence == ir::SequenceParallelism::ring;
        }
      }
    }
  }
  std::vector<std::string> reasons;
  if (gathered) reasons.emplace_back("ZeRO-3 with tied embeddings");
  if (lengthwise) reasons.emplace_back("Ulysses or ring attention");
  return reasons;
}

}  // namespace

std::vector<std::pair<PlanRunner, const char*>> enum_names(PlanRunner) {
  return {{PlanRunner::megatron, "megatron"},
          {PlanRunner::flagscale, "flagscale"},
          {PlanRunner::executor, "executor"}};
}

std::vector<std::string> reasons_against(PlanRunner runner, const ir::Plan& plan,
                                         const Cluster& cluster, const Workload& workload) {
  if (runner == PlanRunner::executor) return executor_reasons(plan, workload);
  const auto terms =
      in_terms_of(runner == PlanRunner::megatron ? Trainer::megatron : Trainer::flagscale, plan,
                  cluster, workload);
  const auto* reasons = std::get_if<std::vector<std::string>>(&terms);
  return reasons == nullptr ? std::vector<std::string>{} : *reasons;
}

}  // namespace orrery::models
