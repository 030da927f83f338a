#include "experiments/study/export_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

/// What Megatron-LM's options, and FlagScale's on top of them, can say: every pipeline the same.
struct Uniform {
  std::vector<int> tensor_parallel;  ///< By stage.
  /// Transformer layers of each chunk, in the order of the model: all stages of the first virtual
  /// stage, then of the second.
  std::vector<int> layers;
  int stages = 1;
  int replicas = 1;
  int context_parallel = 1;
  int expert_parallel = 1;
  bool sequence_parallel = false;
  int micro_batch_size = 1;
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  /// ranks[replica][stage]: devices in rank order.
  std::vector<std::vector<std::vector<DeviceId>>> devices;
};

class Reader {
 public:
  Reader(const LoadedRun& run, Trainer trainer)
      : plan_(*run.plan), workload_(run.workload), trainer_(trainer) {}

  Uniform read() {
    check_plan();
    const ir::Pipeline& first = plan_.pipelines.front();
    out_.stages = static_cast<int>(first.stages.size());
    out_.replicas = static_cast<int>(plan_.pipelines.size());
    out_.micro_batch_size = first.micro_batch_size;
    const ir::Segment& segment = first.stages.front().segments.front();
    const ir::Group& group = segment.groups.front();
    out_.recompute = segment.recompute;
    out_.zero = segment.zero.stage;
    out_.expert_parallel = segment.expert_parallel;
    out_.sequence_parallel = group.sequence == ir::SequenceParallelism::megatron;
    if (group.sequence == ir::SequenceParallelism::ulysses ||
        group.sequence == ir::SequenceParallelism::ring) {
      out_.context_parallel = group.sequence_degree;
    }
    out_.layers.assign(first.stages.size() * plan_.virtual_stages, 0);
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) read_pipeline(p);
    if (out_.zero > 1) {
      refuse(fmt::format("ZeRO-{}: the distributed optimizer is ZeRO-1", out_.zero));
    }
    if (!reasons_.empty()) throw NotExpressible(fmt::format("{}", fmt::join(reasons_, "\n")));
    return out_;
  }

 private:
  /// Each reason once.
  void refuse(std::string reason) {
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) {
      reasons_.push_back(std::move(reason));
    }
  }

  void check_plan() {
    using ir::ScheduleKind;
    if (plan_.schedule != ScheduleKind::one_f_one_b &&
        plan_.schedule != ScheduleKind::interleaved_one_f_one_b) {
      refuse(fmt::format("the schedule {}: only 1F1B, interleaved or not",
                         ir::name_of(plan_.schedule)));
    }
    if (plan_.redundancy != ir::Redundancy::none) refuse("redundant copies of stages");
    if (plan_.optimizer != ir::OptimizerStart::together) refuse("a staggered optimizer");
    if (trainer_ == Trainer::flagscale && plan_.virtual_stages > 1) refuse("virtual stages");
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
    std::vector<std::vector<DeviceId>> devices;
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      devices.push_back(ir::devices_of(pipeline.stages[s]));
      read_stage(pipeline.stages[s], first.stages[s], p == 0, s);
    }
    out_.devices.push_back(std::move(devices));
  }

  void read_stage(const ir::Stage& stage, const ir::Stage& same, bool first_pipeline,
                  std::size_t s) {
    const ir::Segment& model = plan_.pipelines.front().stages.front().segments.front();
    for (std::size_t i = 0; i < stage.segments.size(); ++i) {
      const ir::Segment& segment = stage.segments[i];
      if (segment.groups.size() != 1) {
        refuse("stages with several tensor-parallel groups (make pipelines of them)");
      }
      const ir::Group& group = segment.groups.front();
      const bool aligned = i < same.segments.size() &&
                           segment.first_block == same.segments[i].first_block &&
                           segment.last_block == same.segments[i].last_block;
      if (!aligned) refuse("pipelines whose stages have different layers");
      if (segment.recompute != model.recompute) refuse("recomputation that differs by stage");
      if (segment.zero != model.zero) refuse("ZeRO that differs by stage");
      if (segment.zero.shard_group != 0) refuse("ZeRO over a part of the replicas");
      if (segment.expert_parallel != out_.expert_parallel) {
        refuse("expert parallelism that differs by stage");
      }
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
    if (trainer_ == Trainer::megatron && degree != of_the_plan) {
      refuse("tensor-parallel degrees that differ by stage (FlagScale's meshes may)");
    }
    if (degree != of_the_stage) refuse("tensor-parallel degrees that differ by pipeline");
  }

  int layers_of(const ir::Segment& segment) const {
    const int first = std::max(segment.first_block.value, workload_.first_layer().value);
    const int last = std::min(segment.last_block.value, workload_.last_layer().value);
    return std::max(0, last - first + 1);
  }

  const ir::Plan& plan_;
  const models::Workload& workload_;
  Trainer trainer_;
  Uniform out_;
  std::vector<std::string> reasons_;
};

/// One call of torchrun: a node and its GPUs in the order of their ranks.
struct NodeRanks {
  NodeId node;
  std::vector<int> gpus;
};

/// Ranks in the order of Megatron: tensor parallel first, then data, then pipeline; or pipeline
/// before data. None when some node's ranks do not follow one another.
std::optional<std::vector<NodeRanks>> place(const Uniform& plan, const models::Cluster& cluster,
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
    const models::Device& device = cluster.device(id);
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

/// "Et*3|t*4|t*3L": chunks in the order of the model.
std::string layout_of(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += '|';
    if (i == 0) text += 'E';
    if (layers[i] > 0) text += layers[i] == 1 ? "t" : fmt::format("t*{}", layers[i]);
    if (i + 1 == layers.size()) text += 'L';
  }
  return text;
}

std::vector<std::string> model_flags(const models::Workload& workload, const models::Job& job) {
  const ir::ModelShape& shape = workload.shape;
  std::vector<std::string> flags = {
      fmt::format("--num-layers {}", shape.layers),
      fmt::format("--hidden-size {}", shape.hidden),
      fmt::format("--ffn-hidden-size {}", shape.ffn),
      fmt::format("--num-attention-heads {}", shape.heads),
      fmt::format("--seq-length {}", job.sequence_length),
      fmt::format("--max-position-embeddings {}",
                  std::max<std::int64_t>(shape.positions, job.sequence_length)),
  };
  if (shape.kv_heads != shape.heads) {
    flags.push_back(fmt::format("--group-query-attention --num-query-groups {}", shape.kv_heads));
  }
  if (shape.head_dim * shape.heads != shape.hidden) {
    flags.push_back(fmt::format("--kv-channels {}", shape.head_dim));
  }
  flags.push_back(shape.positions > 0 ? "--position-embedding-type learned_absolute"
                                      : "--position-embedding-type rope");
  if (shape.normalization == ir::Normalization::rms_norm) {
    flags.push_back("--normalization RMSNorm");
  }
  if (shape.activation == ir::Activation::swiglu) flags.push_back("--swiglu");
  if (!shape.biases) flags.push_back("--disable-bias-linear");
  if (!shape.tied_embeddings) flags.push_back("--untie-embeddings-and-output-weights");
  if (shape.experts > 0) {
    flags.push_back(
        fmt::format("--num-experts {} --moe-router-topk {}", shape.experts, shape.top_k));
  }
  if (job.dtype == ir::Dtype::bf16) flags.push_back("--bf16");
  if (job.dtype == ir::Dtype::fp16) flags.push_back("--fp16");
  if (job.dtype == ir::Dtype::fp8) flags.push_back("--bf16 --fp8-format hybrid");
  return flags;
}

std::vector<std::string> parallel_flags(const Uniform& plan, const LoadedRun& run) {
  const int chunks = static_cast<int>(plan.layers.size());
  const bool even = std::all_of(plan.layers.begin(), plan.layers.end(),
                                [&](int layers) { return layers == plan.layers.front(); });
  std::vector<std::string> flags = {
      fmt::format("--tensor-model-parallel-size {}", plan.tensor_parallel.front()),
      fmt::format("--pipeline-model-parallel-size {}", plan.stages)};
  if (!even) {
    flags.push_back(fmt::format("--pipeline-model-parallel-layout '{}'", layout_of(plan.layers)));
  } else if (chunks > plan.stages) {
    flags.push_back(fmt::format("--num-layers-per-virtual-pipeline-stage {}", plan.layers.front()));
  }
  if (plan.context_parallel > 1) {
    flags.push_back(fmt::format("--context-parallel-size {}", plan.context_parallel));
    const bool ulysses =
        run.plan->pipelines.front().stages.front().segments.front().groups.front().sequence ==
        ir::SequenceParallelism::ulysses;
    if (ulysses) flags.push_back("--cp-comm-type a2a");
  }
  if (plan.expert_parallel > 1) {
    flags.push_back(fmt::format("--expert-model-parallel-size {}", plan.expert_parallel));
  }
  if (plan.sequence_parallel) flags.push_back("--sequence-parallel");
  flags.push_back(fmt::format("--micro-batch-size {}", plan.micro_batch_size));
  flags.push_back(fmt::format("--global-batch-size {}", ir::global_batch(*run.plan)));
  if (plan.zero == 1) flags.push_back("--use-distributed-optimizer");
  if (run.plan->communication.gradient_overlap) flags.push_back("--overlap-grad-reduce");
  if (plan.recompute == ir::Recompute::selective) {
    flags.push_back("--recompute-granularity selective");
  }
  if (plan.recompute == ir::Recompute::full) {
    flags.push_back(
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  }
  return flags;
}

std::string megatron_script(const Uniform& plan, const LoadedRun& run, const std::string& path) {
  bool pipeline_first = false;
  auto nodes = place(plan, run.cluster, pipeline_first);
  // With context or expert parallelism the other order of ranks is not to be had.
  if (!nodes && plan.context_parallel == 1 && plan.expert_parallel == 1) {
    nodes = place(plan, run.cluster, pipeline_first = true);
  }
  if (!nodes) {
    throw NotExpressible(
        "this placement: ranks are numbered tensor parallel, data, pipeline (or tensor, pipeline, "
        "data), and those of a node must follow one another");
  }
  std::vector<std::string> flags = parallel_flags(plan, run);
  if (pipeline_first) flags.push_back("--use-tp-pp-dp-mapping");
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# {} of {} on {}, for Megatron-LM. Written by orrery export.\n"
      "# On each node: NODE=<name> MASTER_ADDR=<address of {}> ./megatron.sh DATA AND TOKENIZER "
      "FLAGS\n"
      "# Learning rate, data, tokenizer, checkpoints and logging are yours to add.\n"
      "set -euo pipefail\n\n"
      "case ${{NODE:?the name of this node}} in\n",
      path, run.workload.name, run.cluster.name, run.cluster.node(nodes->front().node).name);
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    const NodeRanks& node = (*nodes)[i];
    text += fmt::format("  {}) node_rank={} gpus={} processes={} ;;\n",
                        run.cluster.node(node.node).name, i, fmt::join(node.gpus, ","),
                        node.gpus.size());
  }
  text += "  *) echo \"no ranks on $NODE\" >&2; exit 2 ;;\nesac\n\nflags=(\n";
  for (const std::string& flag : model_flags(run.workload, run.spec.job)) {
    text += "  " + flag + "\n";
  }
  text += "\n";
  for (const std::string& flag : flags) text += "  " + flag + "\n";
  text += fmt::format(
      ")\n\nCUDA_VISIBLE_DEVICES=$gpus exec torchrun --nnodes {} --node-rank $node_rank \\\n"
      "  --nproc-per-node $processes --master-addr \"${{MASTER_ADDR:?}}\" \\\n"
      "  --master-port \"${{MASTER_PORT:-29500}}\" pretrain_gpt.py \"${{flags[@]}}\" \"$@\"\n",
      nodes->size());
  return text;
}

/// A mesh is a run of stages with one degree and one type of GPU.
struct Mesh {
  int tensor_parallel = 1;
  int stages = 0;
  std::string gpu;
};

std::string flagscale_yaml(const Uniform& plan, const LoadedRun& run, const std::string& path) {
  std::vector<Mesh> meshes;
  for (int s = 0; s < plan.stages; ++s) {
    const std::string& gpu = run.cluster.gpu(plan.devices.front()[s].front()).name;
    for (const auto& replica : plan.devices) {
      for (const DeviceId device : replica[s]) {
        if (run.cluster.gpu(device).name != gpu) {
          throw NotExpressible(
              fmt::format("stage {} has GPUs of several types: a mesh has one", s));
        }
      }
    }
    if (meshes.empty() || meshes.back().tensor_parallel != plan.tensor_parallel[s] ||
        meshes.back().gpu != gpu) {
      meshes.push_back({plan.tensor_parallel[s], 0, gpu});
    }
    ++meshes.back().stages;
  }
  std::vector<int> flat;
  std::vector<std::string> gpus;
  for (const Mesh& mesh : meshes) {
    flat.insert(flat.end(), {mesh.tensor_parallel, plan.context_parallel, plan.expert_parallel,
                             plan.replicas, mesh.stages});
    gpus.push_back(mesh.gpu);
  }
  std::string text = fmt::format(
      "# {} of {} on {}, for FlagScale. Written by orrery export.\n"
      "# Runner, data, tokenizer, learning rate and checkpoints are yours to add; device types "
      "are\n"
      "# the names that your hostfile gives its nodes.\n"
      "system:\n"
      "  hetero:\n"
      "    enable_hetero: true\n"
      "    # tp, cp, ep, dp, pp of each mesh\n"
      "    hetero_process_meshes: [{}]\n"
      "    hetero_pipeline_layer_split: [{}]\n"
      "    hetero_device_types: [\"{}\"]\n"
      "  pipeline_model_parallel_size: {}\n",
      path, run.workload.name, run.cluster.name, fmt::join(flat, ", "),
      fmt::join(plan.layers, ", "), fmt::join(gpus, "\", \""), plan.stages);
  const auto setting = [&](const std::string& flags) {
    // "--num-layers 32 --swiglu" as "num_layers: 32", "swiglu: true".
    std::string name, value;
    const auto end = [&] {
      if (!name.empty()) text += fmt::format("  {}: {}\n", name, value.empty() ? "true" : value);
      name.clear();
      value.clear();
    };
    std::size_t at = 0;
    while (at < flags.size()) {
      const std::size_t blank = std::min(flags.find(' ', at), flags.size());
      const std::string word = flags.substr(at, blank - at);
      if (word.starts_with("--")) {
        end();
        name = word.substr(2);
        std::replace(name.begin(), name.end(), '-', '_');
      } else {
        value += (value.empty() ? "" : " ") + word;
      }
      at = blank + 1;
    }
    end();
  };
  for (const std::string& flags : parallel_flags(plan, run)) {
    if (flags.starts_with("--tensor-model") || flags.starts_with("--pipeline-model")) continue;
    if (flags.starts_with("--micro-batch") || flags.starts_with("--global-batch")) continue;
    setting(flags);
  }
  text += "model:\n";
  for (const std::string& flags : model_flags(run.workload, run.spec.job)) setting(flags);
  setting(fmt::format("--micro-batch-size {}", plan.micro_batch_size));
  setting(fmt::format("--global-batch-size {}", ir::global_batch(*run.plan)));
  return text;
}

}  // namespace

std::vector<std::pair<Trainer, const char*>> enum_names(Trainer) {
  return {{Trainer::megatron, "megatron"}, {Trainer::flagscale, "flagscale"}};
}

void describe(config::Visitor& v, ExportSettings& settings) {
  v.required("plan", settings.plan, "plan file", {.positional = true});
  v.required("to", settings.to, "megatron (a script of torchrun) or flagscale (YAML)");
  v.optional("output", settings.output, "write to this file", {.letter = 'o'});
  describe(v, settings.job);
}

TextResult export_plan(const ExportSettings& settings, const Call&) {
  const std::vector<LoadedRun> runs = load_plans({settings.plan}, settings.job, {});
  const LoadedRun& run = runs.front();
  if (run.workload.shape.layers == 0) {
    throw NotExpressible(fmt::format("'{}', which is no transformer", run.workload.name));
  }
  const Uniform plan = Reader(run, settings.to).read();
  std::string text = settings.to == Trainer::megatron ? megatron_script(plan, run, settings.plan)
                                                      : flagscale_yaml(plan, run, settings.plan);
  config::Diagnostics diagnostics;
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, {settings.plan}, diagnostics);
  diagnostics.raise();
  return delivered_to(settings.output, std::move(text));
}

}  // namespace orrery::experiments
