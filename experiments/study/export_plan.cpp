#include "experiments/study/export_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "experiments/study/export_chakra.h"
#include "experiments/study/files.h"
#include "models/check/trainer.h"
#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

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

/// "([0]*3+[1]*58)": which layers have experts.
std::string moe_layers_of(const models::Workload& workload) {
  std::vector<std::string> runs;
  const int layers = workload.shape.layers;
  for (int first = 0, past = 0; first < layers; first = past) {
    const auto moe = [&](int layer) {
      return workload.block({layer + 1}).kind == ir::BlockKind::moe;
    };
    while (past < layers && moe(past) == moe(first)) ++past;
    runs.push_back(fmt::format("[{}]*{}", moe(first) ? 1 : 0, past - first));
  }
  return fmt::format("({})", fmt::join(runs, "+"));
}

std::vector<std::string> model_flags(const models::Workload& workload, const models::Job& job) {
  const ir::ModelShape& shape = workload.shape;
  std::vector<std::string> flags = {
      fmt::format("--num-layers {}", shape.layers),
      fmt::format("--hidden-size {}", shape.hidden),
      fmt::format("--ffn-hidden-size {}",
                  models::feed_forward_width(shape, ir::BlockKind::transformer)),
      fmt::format("--num-attention-heads {}", shape.heads),
      fmt::format("--seq-length {}", job.sequence_length),
      fmt::format("--max-position-embeddings {}",
                  std::max<std::int64_t>(shape.positions, job.sequence_length)),
  };
  if (shape.kv_rank > 0) {
    flags.push_back(fmt::format(
        "--multi-latent-attention --kv-lora-rank {} --qk-head-dim {} --qk-pos-emb-head-dim {} "
        "--v-head-dim {}",
        shape.kv_rank, shape.head_dim, shape.rotary_dim,
        shape.value_dim > 0 ? shape.value_dim : shape.head_dim));
    if (shape.query_rank > 0) flags.push_back(fmt::format("--q-lora-rank {}", shape.query_rank));
  } else if (shape.kv_heads != shape.heads) {
    flags.push_back(fmt::format("--group-query-attention --num-query-groups {}", shape.kv_heads));
  }
  if (shape.kv_rank == 0 && shape.head_dim * shape.heads != shape.hidden) {
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
    flags.push_back(fmt::format("--moe-ffn-hidden-size {}", shape.ffn));
    if (shape.shared_ffn > 0) {
      flags.push_back(fmt::format("--moe-shared-expert-intermediate-size {}", shape.shared_ffn));
    }
    if (shape.dense_layers > 0 || shape.moe_interval > 1) {
      flags.push_back(fmt::format("--moe-layer-freq '{}'", moe_layers_of(workload)));
    }
  }
  if (job.dtype == ir::Dtype::bf16) flags.push_back("--bf16");
  if (job.dtype == ir::Dtype::fp16) flags.push_back("--fp16");
  if (job.dtype == ir::Dtype::fp8) flags.push_back("--bf16 --fp8-format hybrid");
  if (job.dtype == ir::Dtype::mxfp8) {
    flags.push_back("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8");
  }
  if (job.dtype == ir::Dtype::fp4) flags.push_back("--bf16 --fp4-format e2m1");
  return flags;
}

bool hides(const LoadedRun& run, ir::Purpose purpose) {
  const std::vector<ir::Purpose>& all = run.spec.job.hidden_collectives;
  return std::find(all.begin(), all.end(), purpose) != all.end();
}

/// Whether the job hides dispatch and combine behind other work and Megatron-LM can: it lays passes
/// of chunks beside each other, whose layers it keeps, in 16 bits.
bool overlaps_dispatch(const models::TrainerPlan& plan, const LoadedRun& run) {
  const ir::Dtype dtype = run.spec.job.dtype;
  return hides(run, ir::Purpose::expert_parallel) && plan.expert_parallel > 1 &&
         (plan.stages == 1 || static_cast<int>(plan.layers.size()) > plan.stages) &&
         (plan.recompute == ir::Recompute::none || plan.recompute == ir::Recompute::selective) &&
         dtype != ir::Dtype::fp32 && dtype != ir::Dtype::tf32;
}

/// What the flags of Megatron-LM do not say of the plan, as comments.
std::string notices(const models::TrainerPlan& plan, const LoadedRun& run) {
  const bool hidden = hides(run, ir::Purpose::expert_parallel) && plan.expert_parallel > 1;
  if (!hidden || overlaps_dispatch(plan, run)) return "";
  return "# Dispatch and combine of experts overlap with nothing, though hidden_collectives names "
         "them:\n"
         "# --overlap-moe-expert-parallel-comm wants virtual stages where there are stages, layers "
         "and\n"
         "# experts that are not recomputed, and 16 bits.\n";
}

/// PyTorch's variable that turns TF32 on where a trainer has no option for it.
constexpr const char* kTf32 = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE";

/// Variables that must be 1 for Megatron-LM. Before Blackwell it asks for one queue of kernels
/// where layers or sequences are split, so that they start in the order of their calls; overlapping
/// dispatch does better with more.
std::vector<std::string> variables(const models::TrainerPlan& plan, const LoadedRun& run) {
  const auto& degrees = plan.tensor_parallel;
  const bool split =
      *std::max_element(degrees.begin(), degrees.end()) > 1 || plan.context_parallel > 1;
  std::vector<std::string> names;
  if (split && !overlaps_dispatch(plan, run)) names.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS");
  if (run.spec.job.dtype == ir::Dtype::tf32) names.emplace_back(kTf32);
  return names;
}

std::vector<std::string> parallel_flags(const models::TrainerPlan& plan, const LoadedRun& run) {
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
    flags.push_back(
        fmt::format("--expert-model-parallel-size {} --moe-token-dispatcher-type alltoall",
                    plan.expert_parallel));
  }
  if (plan.sequence_parallel) flags.push_back("--sequence-parallel");
  flags.push_back(fmt::format("--micro-batch-size {}", plan.micro_batch_size));
  flags.push_back(fmt::format("--global-batch-size {}", ir::global_batch(*run.plan)));
  if (plan.zero == 1) flags.push_back("--use-distributed-optimizer");
  if (run.plan->communication.gradient_overlap) flags.push_back("--overlap-grad-reduce");
  if (plan.zero == 1 && run.plan->communication.parameter_overlap) {
    flags.push_back("--overlap-param-gather");
  }
  if (hides(run, ir::Purpose::tensor_parallel) && plan.sequence_parallel) {
    flags.push_back("--tp-comm-overlap");
  }
  if (overlaps_dispatch(plan, run)) flags.push_back("--overlap-moe-expert-parallel-comm");
  if (run.plan->optimizer_offload > 0) {
    flags.push_back(fmt::format(
        "--optimizer-cpu-offload --optimizer-offload-fraction {} --overlap-cpu-optimizer-d2h-h2d "
        "--use-precision-aware-optimizer",
        run.plan->optimizer_offload));
  }
  if (plan.recompute == ir::Recompute::selective) {
    flags.push_back("--recompute-granularity selective");
  }
  if (plan.recompute == ir::Recompute::experts) {
    flags.push_back("--recompute-granularity selective --recompute-modules moe");
  }
  if (plan.recompute == ir::Recompute::full) {
    flags.push_back(
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  }
  return flags;
}

std::string megatron_script(const models::TrainerPlan& plan, const LoadedRun& run,
                            const std::string& path) {
  std::vector<std::string> flags = parallel_flags(plan, run);
  if (plan.pipeline_first) flags.push_back("--use-tp-pp-dp-mapping");
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# {} of {} on {}, for Megatron-LM. Written by orrery export.\n"
      "# On each node: NODE=<name> MASTER_ADDR=<address of {}> ./megatron.sh DATA AND TOKENIZER "
      "FLAGS\n"
      "# Learning rate, data, tokenizer, checkpoints and logging are yours to add.\n"
      "{}"
      "set -euo pipefail\n\n"
      "case ${{NODE:?the name of this node}} in\n",
      path, run.workload.name, run.cluster.name, run.cluster.node(plan.nodes.front().node).name,
      notices(plan, run));
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const models::NodeRanks& node = plan.nodes[i];
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
  text += ")\n\n";
  for (const std::string& name : variables(plan, run)) {
    text += fmt::format("export {0}=${{{0}:-1}}\n", name);
  }
  text += fmt::format(
      "CUDA_VISIBLE_DEVICES=$gpus exec torchrun --nnodes {} --node-rank $node_rank \\\n"
      "  --nproc-per-node $processes --master-addr \"${{MASTER_ADDR:?}}\" \\\n"
      "  --master-port \"${{MASTER_PORT:-29500}}\" pretrain_gpt.py \"${{flags[@]}}\" \"$@\"\n",
      plan.nodes.size());
  return text;
}

/// Chunks of the model as torchtitan names its modules.
std::string modules_of(const std::vector<int>& layers) {
  std::string text = "[";
  int next = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<std::string> names;
    if (i == 0) names.emplace_back("\"tok_embeddings\"");
    for (int l = 0; l < layers[i]; ++l) names.push_back(fmt::format("\"layers.{}\"", next++));
    if (i + 1 == layers.size()) names.insert(names.end(), {"\"norm\"", "\"output\""});
    text += fmt::format("\n  [{}],", fmt::join(names, ", "));
  }
  return text + "\n]";
}

std::string torchtitan_toml(const models::TrainerPlan& plan, const LoadedRun& run,
                            const std::string& path) {
  const models::Job& job = run.spec.job;
  const ir::ModelShape& shape = run.workload.shape;
  std::string text = fmt::format(
      "# {} of {} on {}, for torchtitan. Written by orrery export.\n"
      "# Model and flavor ({} layers, hidden {}, {} heads, {}, {}), data,\n"
      "# tokenizer, optimizer and checkpoints are yours to add. On each node, with MASTER the "
      "address of {}:\n",
      path, run.workload.name, run.cluster.name, shape.layers, shape.hidden, shape.heads,
      ir::name_of(shape.activation), shape.causal ? "causal" : "not causal",
      run.cluster.node(plan.nodes.front().node).name);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const models::NodeRanks& node = plan.nodes[i];
    text += fmt::format(
        "#   {}: CUDA_VISIBLE_DEVICES={} torchrun --nnodes {} --node-rank {} --nproc-per-node {} "
        "--master-addr MASTER -m torchtitan.train --job.config_file FILE\n",
        run.cluster.node(node.node).name, fmt::join(node.gpus, ","), plan.nodes.size(), i,
        node.gpus.size());
  }
  if (plan.tensor_parallel.front() > 1 && !plan.sequence_parallel) {
    text +=
        "# torchtitan's tensor parallelism always splits norms along the sequence; the plan does "
        "not.\n";
  }
  const bool tf32 = job.dtype == ir::Dtype::tf32;
  if (tf32) text += fmt::format("# Products are in TF32 with {}=1 in the environment.\n", kTf32);
  const ir::Pipeline& first = run.plan->pipelines.front();
  const bool pipelined = plan.stages > 1;
  const int shards = plan.shards();
  text += fmt::format("\n[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n",
                      plan.micro_batch_size * (pipelined ? first.micro_batches : 1),
                      ir::global_batch(*run.plan), job.sequence_length);
  text += fmt::format("mixed_precision_param = \"{}\"\n",
                      tf32 || job.dtype == ir::Dtype::fp32 ? "float32" : "bfloat16");
  text += fmt::format(
      "\n[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n"
      "tensor_parallel_degree = {}\ncontext_parallel_degree = {}\npipeline_parallel_degree = {}\n",
      plan.replicas / shards, shards, plan.tensor_parallel.front(), plan.context_parallel,
      plan.stages);
  if (shards > 1) {
    text +=
        fmt::format("fsdp_reshard_after_forward = \"{}\"\n", plan.zero == 3 ? "always" : "never");
  }
  if (plan.expert_parallel > 1) {
    text += fmt::format("expert_parallel_degree = {}\nexpert_tensor_parallel_degree = {}\n",
                        plan.expert_parallel, plan.tensor_parallel.front());
  }
  if (pipelined) {
    const char* schedule = run.plan->schedule == ir::ScheduleKind::gpipe ? "GPipe"
                           : run.plan->virtual_stages > 1                ? "Interleaved1F1B"
                                                                         : "1F1B";
    text += fmt::format(
        "pipeline_parallel_schedule = \"{}\"\npipeline_parallel_microbatch_size = {}\n"
        "module_fqns_per_model_part = {}\n",
        schedule, plan.micro_batch_size, modules_of(plan.layers));
  }
  const char* recompute = plan.recompute == ir::Recompute::none        ? "none"
                          : plan.recompute == ir::Recompute::selective ? "selective"
                                                                       : "full";
  text += fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", recompute);
  if (job.dtype == ir::Dtype::fp8) text += "\n[model]\nconverters = [\"quantize.linear.float8\"]\n";
  if (job.dtype == ir::Dtype::mxfp8) text += "\n[model]\nconverters = [\"quantize.linear.mx\"]\n";
  return text;
}

/// Recomputation and the ranks are said by the model's code and the hostfile, not here.
std::string deepspeed_json(const models::TrainerPlan& plan, const LoadedRun& run) {
  const models::Job& job = run.spec.job;
  const ir::Pipeline& first = run.plan->pipelines.front();
  nlohmann::ordered_json json;
  json["train_batch_size"] = ir::global_batch(*run.plan);
  json["train_micro_batch_size_per_gpu"] = plan.micro_batch_size;
  json["gradient_accumulation_steps"] = first.micro_batches;
  json["zero_optimization"]["stage"] = plan.zero;
  json["zero_optimization"]["overlap_comm"] =
      run.plan->communication.gradient_overlap || hides(run, ir::Purpose::zero);
  if (run.plan->communication.bucket.value > 0) {
    // Counted in elements.
    json["zero_optimization"]["reduce_bucket_size"] =
        static_cast<std::int64_t>(run.plan->communication.bucket.value / 2);
  }
  if (run.plan->optimizer_offload > 0) {
    json["zero_optimization"]["offload_optimizer"] = {
        {"device", "cpu"}, {"pin_memory", true}, {"ratio", run.plan->optimizer_offload}};
  }
  if (plan.tensor_parallel.front() > 1) {
    json["tensor_parallel"]["autotp_size"] = plan.tensor_parallel.front();
  }
  json["bf16"]["enabled"] = job.dtype == ir::Dtype::bf16;
  json["fp16"]["enabled"] = job.dtype == ir::Dtype::fp16;
  return json.dump(2) + "\n";
}

std::string flagscale_yaml(const models::TrainerPlan& plan, const LoadedRun& run,
                           const std::string& path) {
  std::vector<int> flat;
  std::vector<std::string> gpus;
  for (const models::Mesh& mesh : plan.meshes) {
    flat.insert(flat.end(), {mesh.tensor_parallel, plan.context_parallel, plan.expert_parallel,
                             plan.replicas, mesh.stages});
    gpus.push_back(mesh.gpu);
  }
  std::string envs;
  for (const std::string& name : variables(plan, run)) {
    envs += fmt::format("# The experiment's envs need {}: 1.\n", name);
  }
  std::string text = fmt::format(
      "# {} of {} on {}, for FlagScale. Written by orrery export.\n"
      "# Runner, data, tokenizer, learning rate and checkpoints are yours to add; device types "
      "are\n"
      "# the names that your hostfile gives its nodes.\n"
      "{}{}"
      "system:\n"
      "  hetero:\n"
      "    enable_hetero: true\n"
      "    # tp, cp, ep, dp, pp of each mesh\n"
      "    hetero_process_meshes: [{}]\n"
      "    hetero_pipeline_layer_split: [{}]\n"
      "    hetero_device_types: [\"{}\"]\n"
      "  pipeline_model_parallel_size: {}\n",
      path, run.workload.name, run.cluster.name, envs, notices(plan, run), fmt::join(flat, ", "),
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

/// A process of a launch that says for each rank where it is.
struct RankPlace {
  int pipeline = 0;
  int stage = 0;
  int group = 0;     ///< Of the stage.
  int position = 0;  ///< In the group.
  DeviceId device;
};

/// All ranks of a plan, pipeline by pipeline, stage by stage.
std::vector<RankPlace> places_of(const ir::Plan& plan) {
  std::vector<RankPlace> places;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[p];
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const auto& groups = pipeline.stages[s].segments.front().groups;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        for (std::size_t i = 0; i < groups[g].devices.size(); ++i) {
          places.push_back({static_cast<int>(p), static_cast<int>(s), static_cast<int>(g),
                            static_cast<int>(i), groups[g].devices[i]});
        }
      }
    }
  }
  return places;
}

/// torchrun numbers ranks node by node: nodes in the order of the cluster, GPUs of a node in that
/// of the plan.
std::string torchrun_script(const LoadedRun& run, const std::string& path) {
  const models::Cluster& cluster = run.cluster;
  std::map<NodeId, std::vector<RankPlace>> nodes;
  for (const RankPlace& place : places_of(*run.plan)) {
    nodes[cluster.device(place.device).node].push_back(place);
  }
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# {} of {} on {}, for a trainer of your own. Written by orrery export.\n"
      "# On each node: NODE=<name> MASTER_ADDR=<address of {}> ./launch.sh TRAIN.py ARGUMENTS\n"
      "# PLAN_RANKS has a word for each rank, pipeline:stage:group:position, and PLAN_BATCHES one\n"
      "# for each pipeline, micro-batches x their size. The same placement for orrery execute:\n"
      "#   --hosts ",
      path, run.workload.name, cluster.name, cluster.node(nodes.begin()->first).name);
  // orrery execute counts through the devices of its hosts as the cluster does, unused ones, too.
  std::vector<std::string> hosts;
  for (const NodeId node : ids_from_to(NodeId{0}, nodes.rbegin()->first)) {
    hosts.push_back(
        fmt::format("{}:{}", cluster.node(node).name, cluster.node(node).gpu_types.size()));
  }
  std::vector<std::string> ranks;
  for (const auto& [node, places] : nodes) {
    for (const RankPlace& place : places) {
      ranks.push_back(
          fmt::format("{}:{}:{}:{}", place.pipeline, place.stage, place.group, place.position));
    }
  }
  std::vector<std::string> batches;
  for (const ir::Pipeline& pipeline : run.plan->pipelines) {
    batches.push_back(fmt::format("{}x{}", pipeline.micro_batches, pipeline.micro_batch_size));
  }
  text += fmt::format("{}\n", fmt::join(hosts, ","));
  text += fmt::format(
      "set -euo pipefail\n\nexport PLAN_RANKS=\"{}\"\nexport PLAN_BATCHES=\"{}\"\n\n"
      "case ${{NODE:?the name of this node}} in\n",
      fmt::join(ranks, " "), fmt::join(batches, " "));
  int number = 0;
  for (const auto& [node, places] : nodes) {
    std::vector<int> gpus;
    for (const RankPlace& place : places) gpus.push_back(cluster.device(place.device).position);
    text += fmt::format("  {}) node_rank={} gpus={} processes={} ;;\n", cluster.node(node).name,
                        number++, fmt::join(gpus, ","), gpus.size());
  }
  return text +
         fmt::format(
             "  *) echo \"no ranks on $NODE\" >&2; exit 2 ;;\nesac\n\n"
             "CUDA_VISIBLE_DEVICES=$gpus exec torchrun --nnodes {} --node-rank $node_rank \\\n"
             "  --nproc-per-node $processes --master-addr \"${{MASTER_ADDR:?}}\" \\\n"
             "  --master-port \"${{MASTER_PORT:-29500}}\" \"$@\"\n",
             nodes.size());
}

/// The sizes of Llama that its code has configurations of.
struct HexiscaleModel {
  const char* name;
  int hidden;
  int heads;
};
constexpr HexiscaleModel kHexiscaleModels[] = {{"llama-7b", 4096, 32},
                                               {"llama-13b", 5120, 40},
                                               {"llama-30b", 6656, 52},
                                               {"llama-70b", 8192, 64}};

/// Why HexiScale's code cannot run the plan, each reason once.
std::vector<std::string> hexiscale_reasons(const LoadedRun& run, const HexiscaleModel* model) {
  std::vector<std::string> reasons;
  const auto refuse = [&](std::string reason) {
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(std::move(reason));
    }
  };
  const ir::Plan& plan = *run.plan;
  if (model == nullptr) {
    refuse(fmt::format("'{}': it has configurations of Llama 7B, 13B, 30B and 70B",
                       run.workload.name));
  }
  if (run.spec.job.sequence_length != 4096) {
    refuse(fmt::format("sequences of {} tokens: its code sets 4096", run.spec.job.sequence_length));
  }
  if (run.spec.job.dtype != ir::Dtype::fp16 && run.spec.job.dtype != ir::Dtype::bf16) {
    refuse(fmt::format("{}: it trains in fp16 or bf16", ir::name_of(run.spec.job.dtype)));
  }
  if (plan.schedule != ir::ScheduleKind::gpipe && plan.schedule != ir::ScheduleKind::one_f_one_b) {
    refuse(fmt::format("the schedule {}: only GPipe and 1F1B", ir::name_of(plan.schedule)));
  }
  if (plan.redundancy != ir::Redundancy::none) refuse("redundant copies of stages");
  if (plan.optimizer != ir::OptimizerStart::together) refuse("a staggered optimizer");
  if (plan.optimizer_offload > 0) refuse("optimizer states in host memory");
  const ir::Segment& first = plan.pipelines.front().stages.front().segments.front();
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (!pipeline.reroutes.empty()) refuse("micro-batches that other pipelines compute");
    if (pipeline.length_range) refuse("pipelines for ranges of sequence lengths");
    for (const ir::Stage& stage : pipeline.stages) {
      if (stage.segments.size() != 1 || stage.segments.front().groups.size() != 1) {
        refuse("stages with several tensor-parallel groups or segments");
      }
      const ir::Segment& segment = stage.segments.front();
      const ir::Group& group = segment.groups.front();
      if (segment.zero.stage == 1 || segment.zero.shard_group != 0 || segment.zero != first.zero) {
        refuse("ZeRO-1, ZeRO over a part of the replicas, or that differs by stage");
      }
      if (segment.recompute != first.recompute || segment.recompute == ir::Recompute::selective ||
          segment.recompute == ir::Recompute::experts) {
        refuse("selective recomputation, or one that differs by stage");
      }
      if (group.sequence != first.groups.front().sequence ||
          (group.sequence != ir::SequenceParallelism::none &&
           group.sequence != ir::SequenceParallelism::megatron)) {
        refuse("context parallelism, or sequence parallelism that differs by stage");
      }
      if (segment.expert_parallel > 1) refuse("expert parallelism");
      if (model != nullptr && model->heads % group.tensor_parallel != 0) {
        refuse(fmt::format("tensor parallelism over {}: it must divide the heads",
                           group.tensor_parallel));
      }
    }
  }
  return reasons;
}

/// Processes started one by one with their RANK, as its README does where nodes differ.
std::string hexiscale_script(const LoadedRun& run, const std::string& path) {
  const ir::Plan& plan = *run.plan;
  const models::Cluster& cluster = run.cluster;
  const ir::ModelShape& shape = run.workload.shape;
  const bool llama = shape.activation == ir::Activation::swiglu && shape.experts == 0 &&
                     shape.normalization == ir::Normalization::rms_norm && shape.positions == 0 &&
                     shape.kv_rank == 0 && shape.window == 0 && shape.mtp_layers == 0;
  const auto model = std::find_if(
      std::begin(kHexiscaleModels), std::end(kHexiscaleModels), [&](const HexiscaleModel& known) {
        return llama && shape.hidden == known.hidden && shape.heads == known.heads;
      });
  const std::vector<std::string> reasons =
      hexiscale_reasons(run, model == std::end(kHexiscaleModels) ? nullptr : model);
  if (!reasons.empty()) throw NotExpressible(fmt::format("{}", fmt::join(reasons, "\n")));
  std::vector<std::string> degrees, layers;
  std::vector<int> batches, chunks;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    std::vector<int> own_degrees, own_layers;
    for (const ir::Stage& stage : pipeline.stages) {
      const ir::Segment& segment = stage.segments.front();
      own_degrees.push_back(segment.groups.front().tensor_parallel);
      const int begin = std::max(segment.first_block.value, run.workload.first_layer().value);
      const int end = std::min(segment.last_block.value, run.workload.last_layer().value);
      own_layers.push_back(std::max(0, end - begin + 1));
    }
    degrees.push_back(fmt::format("[{}]", fmt::join(own_degrees, ", ")));
    layers.push_back(fmt::format("[{}]", fmt::join(own_layers, ", ")));
    batches.push_back(pipeline.micro_batches * pipeline.micro_batch_size);
    chunks.push_back(pipeline.micro_batches);
  }
  std::map<NodeId, std::vector<std::string>> nodes;
  const std::vector<RankPlace> places = places_of(plan);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const models::Device& device = cluster.device(places[rank].device);
    nodes[device.node].push_back(fmt::format("{}:{}", rank, device.position));
  }
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# {} of {} on {}, for HexiScale's code (FlashFlex). Written by orrery export.\n"
      "# On each node, in its folder: NODE=<name> MASTER_ADDR=<address of {}> ./hexiscale.sh "
      "FLAGS\n"
      "# Learning rate, data and the number of iterations (--run-iter) are yours to add.\n"
      "set -euo pipefail\n\n"
      "case ${{NODE:?the name of this node}} in\n",
      path, run.workload.name, cluster.name,
      cluster.node(cluster.device(places.front().device).node).name);
  for (const auto& [node, ranks] : nodes) {
    text += fmt::format("  {}) ranks=\"{}\" ;;  # rank:GPU\n", cluster.node(node).name,
                        fmt::join(ranks, " "));
  }
  text += "  *) echo \"no ranks on $NODE\" >&2; exit 2 ;;\nesac\n\nflags=(\n";
  const ir::Segment& first = plan.pipelines.front().stages.front().segments.front();
  const char* precision = run.spec.job.dtype == ir::Dtype::bf16 ? "bf16" : "fp16";
  std::vector<std::string> flags = {
      fmt::format("--model_size {}", model->name),
      fmt::format("--{0} --mixed_precision {0}", precision),
      "--use-flash-attn",
      fmt::format("--total-layer-num {}", shape.layers),
      fmt::format("--hetero_configs \"[{}]\"", fmt::join(degrees, ", ")),
      fmt::format("--layer_partitions \"[{}]\"", fmt::join(layers, ", ")),
      fmt::format("--global_bsz_size {}", fmt::join(batches, " ")),
      fmt::format("--chunks {}", fmt::join(chunks, " ")),
      fmt::format("--pipeline-type {}",
                  plan.schedule == ir::ScheduleKind::gpipe ? "Gpipe" : "1F1B"),
      fmt::format("--default_dp_type {}", first.zero.stage == 0   ? "ddp"
                                          : first.zero.stage == 2 ? "zero2"
                                                                  : "zero3")};
  if (first.recompute == ir::Recompute::full) flags.emplace_back("--checkpoint-layers");
  if (first.groups.front().sequence == ir::SequenceParallelism::megatron) {
    flags.emplace_back("--seq-parallel");
  }
  for (const std::string& flag : flags) text += "  " + flag + "\n";
  return text + fmt::format(
                    ")\n\nexport MASTER_ADDR=${{MASTER_ADDR:?}} MASTER_PORT=${{MASTER_PORT:-9998}} "
                    "WORLD_SIZE={}\n"
                    "for rank in $ranks; do\n"
                    "  RANK=${{rank%:*}} LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=${{rank#*:}} \\\n"
                    "    python3 llama_train.py \"${{flags[@]}}\" \"$@\" &\n"
                    "done\nwait\n",
                    places.size());
}

std::string trainer_text(models::Trainer trainer, const LoadedRun& run, const std::string& path) {
  const auto found = models::in_terms_of(trainer, *run.plan, run.cluster, run.workload);
  if (const auto* reasons = std::get_if<std::vector<std::string>>(&found)) {
    throw NotExpressible(fmt::format("{}", fmt::join(*reasons, "\n")));
  }
  const auto& plan = std::get<models::TrainerPlan>(found);
  switch (trainer) {
    case models::Trainer::megatron:
      return megatron_script(plan, run, path);
    case models::Trainer::flagscale:
      return flagscale_yaml(plan, run, path);
    case models::Trainer::torchtitan:
      return torchtitan_toml(plan, run, path);
    case models::Trainer::deepspeed:
      break;
  }
  return deepspeed_json(plan, run);
}

/// Writes the files of an export that is a folder; what was written, in words.
TextResult write_folder(const std::vector<ExportedFile>& files, const Text& output) {
  config::Diagnostics diagnostics;
  if (!output || *output == kStandardOutput) {
    diagnostics.add(at_setting("output"), "missing", "a folder for the files");
  } else {
    check_out_folder("output", *output, diagnostics);
  }
  // Readers take every trace of the folder.
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(output.value_or(""), error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::any_of(files.begin(), files.end(),
                                  [&](const ExportedFile& file) { return file.name == name; });
    if (entry.path().extension() != ".et" || ours) continue;
    diagnostics.add(at_setting("output"),
                    fmt::format("'{}' has {} of another export", *output, name),
                    "name another folder");
    break;
  }
  diagnostics.raise();
  const std::filesystem::path folder = *output;
  make_folders(*output);
  for (const ExportedFile& file : files) {
    const std::filesystem::path path = folder / file.name;
    replace_text_file(path.string(), file.bytes);
    if (!file.executable) continue;
    std::filesystem::permissions(path,
                                 std::filesystem::perms::owner_exec |
                                     std::filesystem::perms::group_exec |
                                     std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
  }
  return {fmt::format("{} files in {}\n", files.size(), *output), {}};
}

}  // namespace

std::vector<std::pair<ExportTarget, const char*>> enum_names(ExportTarget) {
  return {{ExportTarget::megatron, "megatron"},     {ExportTarget::flagscale, "flagscale"},
          {ExportTarget::torchtitan, "torchtitan"}, {ExportTarget::deepspeed, "deepspeed"},
          {ExportTarget::hexiscale, "hexiscale"},   {ExportTarget::torchrun, "torchrun"},
          {ExportTarget::chakra, "chakra"},         {ExportTarget::astra_sim, "astra-sim"}};
}

void describe(config::Visitor& v, ExportSettings& settings) {
  v.required("plan", settings.plan, "plan file", {.positional = true});
  v.required(
      "to", settings.to,
      "megatron (a script of torchrun), flagscale (YAML), torchtitan (TOML), deepspeed (JSON), "
      "hexiscale (a script), torchrun (a script, for any plan), chakra (a folder of execution "
      "traces) or astra-sim (a folder: traces, network and system)");
  v.optional("output", settings.output, "write to this file; chakra, astra-sim: into this folder",
             {.letter = 'o'});
  describe(v, settings.job);
}

TextResult export_plan(const ExportSettings& settings, const Call& call) {
  JudgeSettings judge;
  judge.expanded = settings.to == ExportTarget::chakra || settings.to == ExportTarget::astra_sim;
  const std::vector<LoadedRun> runs = load_plans({settings.plan}, settings.job, judge);
  const LoadedRun& run = runs.front();
  std::string text;
  switch (settings.to) {
    case ExportTarget::megatron:
      text = trainer_text(models::Trainer::megatron, run, settings.plan);
      break;
    case ExportTarget::flagscale:
      text = trainer_text(models::Trainer::flagscale, run, settings.plan);
      break;
    case ExportTarget::torchtitan:
      text = trainer_text(models::Trainer::torchtitan, run, settings.plan);
      break;
    case ExportTarget::deepspeed:
      text = trainer_text(models::Trainer::deepspeed, run, settings.plan);
      if (run.spec.job.dtype == ir::Dtype::tf32) {
        call.note(
            fmt::format("DeepSpeed has no option for TF32: set {}=1 in its environment, or "
                        "products are in fp32",
                        kTf32));
      }
      break;
    case ExportTarget::hexiscale:
      text = hexiscale_script(run, settings.plan);
      break;
    case ExportTarget::torchrun:
      text = torchrun_script(run, settings.plan);
      break;
    case ExportTarget::chakra:
      return write_folder(chakra_files(run), settings.output);
    case ExportTarget::astra_sim:
      return write_folder(astra_sim_files(run), settings.output);
  }
  config::Diagnostics diagnostics;
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, {settings.plan}, diagnostics);
  diagnostics.raise();
  return delivered_to(settings.output, text);
}

}  // namespace orrery::experiments
