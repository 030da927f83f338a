#include "experiments/study/export_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "models/check/trainer.h"

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
      "set -euo pipefail\n\n"
      "case ${{NODE:?the name of this node}} in\n",
      path, run.workload.name, run.cluster.name, run.cluster.node(plan.nodes.front().node).name);
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
  text += fmt::format(
      ")\n\nCUDA_VISIBLE_DEVICES=$gpus exec torchrun --nnodes {} --node-rank $node_rank \\\n"
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
  if (job.dtype == ir::Dtype::fp16) {
    throw NotExpressible("fp16: torchtitan trains in bfloat16 or float32");
  }
  const ir::ModelShape& shape = run.workload.shape;
  std::string text = fmt::format(
      "# {} of {} on {}, for torchtitan. Written by orrery export.\n"
      "# Model and flavor ({} layers, hidden {}, {} heads), data, tokenizer, optimizer and\n"
      "# checkpoints are yours to add. On each node, with MASTER the address of {}:\n",
      path, run.workload.name, run.cluster.name, shape.layers, shape.hidden, shape.heads,
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
  const ir::Pipeline& first = run.plan->pipelines.front();
  const bool pipelined = plan.stages > 1;
  const int shards = plan.zero == 0 ? 1 : plan.shard_group == 0 ? plan.replicas : plan.shard_group;
  text += fmt::format("\n[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n",
                      plan.micro_batch_size * (pipelined ? first.micro_batches : 1),
                      ir::global_batch(*run.plan), job.sequence_length);
  text += fmt::format("mixed_precision_param = \"{}\"\n",
                      job.dtype == ir::Dtype::fp32 ? "float32" : "bfloat16");
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
    text += fmt::format("expert_parallel_degree = {}\n", plan.expert_parallel);
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
  json["zero_optimization"]["overlap_comm"] = run.plan->communication.gradient_overlap;
  if (run.plan->communication.bucket.value > 0) {
    // Counted in elements.
    json["zero_optimization"]["reduce_bucket_size"] =
        static_cast<std::int64_t>(run.plan->communication.bucket.value / 2);
  }
  if (plan.tensor_parallel.front() > 1) {
    json["tensor_parallel"]["autotp_size"] = plan.tensor_parallel.front();
  }
  json["bf16"]["enabled"] = job.dtype == ir::Dtype::bf16 || job.dtype == ir::Dtype::fp8;
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

void describe(config::Visitor& v, ExportSettings& settings) {
  v.required("plan", settings.plan, "plan file", {.positional = true});
  v.required(
      "to", settings.to,
      "megatron (a script of torchrun), flagscale (YAML), torchtitan (TOML) or deepspeed (JSON)");
  v.optional("output", settings.output, "write to this file", {.letter = 'o'});
  describe(v, settings.job);
}

TextResult export_plan(const ExportSettings& settings, const Call&) {
  const std::vector<LoadedRun> runs = load_plans({settings.plan}, settings.job, {});
  const LoadedRun& run = runs.front();
  const auto found = models::in_terms_of(settings.to, *run.plan, run.cluster, run.workload);
  if (const auto* reasons = std::get_if<std::vector<std::string>>(&found)) {
    throw NotExpressible(fmt::format("{}", fmt::join(*reasons, "\n")));
  }
  const auto& plan = std::get<models::TrainerPlan>(found);
  const std::string text = [&] {
    switch (settings.to) {
      case models::Trainer::megatron:
        return megatron_script(plan, run, settings.plan);
      case models::Trainer::flagscale:
        return flagscale_yaml(plan, run, settings.plan);
      case models::Trainer::torchtitan:
        return torchtitan_toml(plan, run, settings.plan);
      case models::Trainer::deepspeed:
        break;
    }
    return deepspeed_json(plan, run);
  }();
  config::Diagnostics diagnostics;
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, {settings.plan}, diagnostics);
  diagnostics.raise();
  return delivered_to(settings.output, text);
}

}  // namespace orrery::experiments
