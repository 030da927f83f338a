#include "experiments/study/export_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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
  v.required("to", settings.to, "megatron (a script of torchrun) or flagscale (YAML)");
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
  std::string text = settings.to == models::Trainer::megatron
                         ? megatron_script(plan, run, settings.plan)
                         : flagscale_yaml(plan, run, settings.plan);
  config::Diagnostics diagnostics;
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, {settings.plan}, diagnostics);
  diagnostics.raise();
  return delivered_to(settings.output, std::move(text));
}

}  // namespace orrery::experiments
