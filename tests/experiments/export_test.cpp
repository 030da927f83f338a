// Do exported files say what the plan says, in the trainer's names, and do trainers refuse what
// they cannot run?
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "calibration/importers/chakra_file.h"
#include "experiments/study/export_plan.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::export_test {
namespace {

/// Two nodes of two GPUs.
constexpr const char* kFour =
    "schema: orrery/cluster/1\nname: four\nnodes:\n"
    "  - {name: n, count: 2, gpus: {type: A100-80GB, count: 2}, domains: {link: nvlink3}, nics: "
    "{link: infiniband-200, count: 1}, pcie: [{link: pcie4-x16}], host_memory: {capacity: 1 TiB, "
    "bandwidth: 100 GB/s}}\n";

std::string segment(int first, int last, const std::string& devices, int tensor_parallel,
                    int samples, const std::string& more) {
  return "{blocks: " + std::to_string(first) + "-" + std::to_string(last) +
         ", groups: [{devices: [" + devices +
         "], tensor_parallel: " + std::to_string(tensor_parallel) +
         ", samples: " + std::to_string(samples) + "}]" + more + "}";
}

struct Exported {
  std::string text;
  std::string refused;  ///< Why not.
  std::string note = {};
  bool has(const std::string& line) const { return text.find(line + "\n") != std::string::npos; }
};

/// `hidden`: a list in YAML; `model`: a file in place of gpt3_125m; on GPUs that have all dtypes
/// where one is named; `output`: a folder for what is several files.
Exported exported(const std::string& plan, ExportTarget to, const std::string& hidden = "",
                  const std::string& model = "", const std::string& dtype = "",
                  const std::string& output = "") {
  const support::TempFolder folder;
  write_text_file(folder / "four.yaml",
                  dtype.empty() ? kFour : support::replaced(kFour, "A100-80GB", "B200-180GB"));
  write_text_file(folder / "plan.yaml", "schema: orrery/plan/1\n" + plan);
  ExportSettings settings;
  settings.plan = folder / "plan.yaml";
  settings.to = to;
  if (!output.empty()) settings.output = output;
  settings.job.cluster = folder / "four.yaml";
  settings.job.model = model.empty() ? "gpt3_125m" : folder / "model.yaml";
  if (!model.empty()) write_text_file(folder / "model.yaml", model);
  settings.job.set_default("sequence_length", 512);
  write_text_file(folder / "job.yaml",
                  "schema: orrery/job/1\nglobal_batch: 16\n"
                  "sequence_length: 512\nhidden_collectives: [" +
                      hidden +
                      "]\nallowed: {zero_stages: [0, 3], sequence_parallel: true, schedules: "
                      "[1f1b, interleaved_1f1b]}\n");
  if (!hidden.empty()) settings.job.job = folder / "job.yaml";
  if (!dtype.empty()) settings.job.changes["dtype"] = config::Value::scalar(dtype);
  Call call;
  std::string note;
  call.on_note = [&](const std::string& text) { note += text; };
  try {
    const std::string text = export_plan(settings, call).text;
    return {text, "", note};
  } catch (const NotExpressible& reasons) {
    return {"", reasons.what()};
  }
}

/// gpt3_125m has 12 layers between an embedding (block 0) and a head (13).
std::string replicas(const std::string& more, int micro_batches = 4) {
  std::string text = "pipelines:\n";
  for (const char* devices : {"0, 1", "2, 3"}) {
    text += "  - {micro_batches: " + std::to_string(micro_batches) +
            ", micro_batch_size: 2, stages: [{segments: [" + segment(0, 13, devices, 2, 2, more) +
            "]}]}\n";
  }
  return text;
}

std::string uneven_pipelines() {
  return "pipelines:\n"
         "  - {micro_batches: 4, micro_batch_size: 1, stages: [{segments: [" +
         segment(0, 5, "0", 1, 1, "") + "]}, {segments: [" + segment(6, 13, "2", 1, 1, "") +
         "]}]}\n"
         "  - {micro_batches: 4, micro_batch_size: 1, stages: [{segments: [" +
         segment(0, 5, "1", 1, 1, "") + "]}, {segments: [" + segment(6, 13, "3", 1, 1, "") +
         "]}]}\n";
}

TEST(Export, TorchtitanGetsUnevenStagesAsModules) {
  const Exported file = exported(uneven_pipelines(), ExportTarget::torchtitan);
  ASSERT_EQ(file.refused, "");
  EXPECT_TRUE(file.has("pipeline_parallel_degree = 2")) << file.text;
  EXPECT_TRUE(file.has("pipeline_parallel_schedule = \"1F1B\""));
  EXPECT_TRUE(file.has("pipeline_parallel_microbatch_size = 1"));
  EXPECT_TRUE(file.has("local_batch_size = 4"));
  EXPECT_TRUE(file.has("global_batch_size = 8"));
  EXPECT_TRUE(file.has("data_parallel_replicate_degree = 2"));
  EXPECT_TRUE(
      file.has("  [\"tok_embeddings\", \"layers.0\", \"layers.1\", \"layers.2\", "
               "\"layers.3\", \"layers.4\"],"))
      << file.text;
  EXPECT_NE(file.text.find("\"layers.11\", \"norm\", \"output\"],\n]"), std::string::npos);
  EXPECT_NE(file.text.find("n-1: CUDA_VISIBLE_DEVICES=0,1 torchrun --nnodes 2 --node-rank 1"),
            std::string::npos)
      << file.text;
}

TEST(Export, TorchtitanShardsAsZeroSays) {
  const Exported three = exported(replicas(", zero: {stage: 3}"), ExportTarget::torchtitan);
  EXPECT_TRUE(three.has("data_parallel_shard_degree = 2")) << three.text << three.refused;
  EXPECT_TRUE(three.has("data_parallel_replicate_degree = 1"));
  EXPECT_TRUE(three.has("fsdp_reshard_after_forward = \"always\""));
  EXPECT_TRUE(three.has("tensor_parallel_degree = 2"));
  EXPECT_TRUE(three.has("local_batch_size = 2")) << "micro-batches are accumulated";
  EXPECT_TRUE(three.has("global_batch_size = 16"));
  const Exported two = exported(replicas(", zero: {stage: 2}"), ExportTarget::torchtitan);
  EXPECT_TRUE(two.has("fsdp_reshard_after_forward = \"never\"")) << two.text << two.refused;
  EXPECT_NE(
      exported(replicas(", zero: {stage: 1}"), ExportTarget::torchtitan).refused.find("ZeRO-1"),
      std::string::npos);
}

TEST(Export, DeepspeedGetsItsJson) {
  const Exported file = exported(replicas(", zero: {stage: 3}"), ExportTarget::deepspeed);
  ASSERT_EQ(file.refused, "");
  const nlohmann::json json = nlohmann::json::parse(file.text);
  EXPECT_EQ(json["train_batch_size"], 16);
  EXPECT_EQ(json["train_micro_batch_size_per_gpu"], 2);
  EXPECT_EQ(json["gradient_accumulation_steps"], 4);
  EXPECT_EQ(json["zero_optimization"]["stage"], 3);
  EXPECT_EQ(json["zero_optimization"]["overlap_comm"], false);
  const Exported ahead = exported(replicas(", zero: {stage: 3}"), ExportTarget::deepspeed, "zero");
  EXPECT_EQ(nlohmann::json::parse(ahead.text)["zero_optimization"]["overlap_comm"], true);
  EXPECT_EQ(json["tensor_parallel"]["autotp_size"], 2);
  EXPECT_EQ(json["bf16"]["enabled"], true);
  EXPECT_NE(exported(uneven_pipelines(), ExportTarget::deepspeed).refused.find("PipelineModule"),
            std::string::npos);
}

TEST(Export, MegatronGetsItsFlagsAndRefusesZero3) {
  const Exported file = exported(uneven_pipelines(), ExportTarget::megatron);
  ASSERT_EQ(file.refused, "");
  EXPECT_TRUE(file.has("  --pipeline-model-parallel-size 2"));
  EXPECT_TRUE(file.has("  --pipeline-model-parallel-layout 'Et*5|t*7L'")) << file.text;
  EXPECT_TRUE(file.has("  --global-batch-size 8"));
  EXPECT_FALSE(file.has("  --tp-comm-overlap"));
  std::string along = replicas("");
  const std::string samples = ", samples: 2";
  for (std::size_t at = 0; (at = along.find(samples, at)) != std::string::npos;) {
    along.replace(at, samples.size(), ", sequence: megatron" + samples);
    at += 3 * samples.size();
  }
  EXPECT_TRUE(
      exported(along, ExportTarget::megatron, "tensor_parallel").has("  --tp-comm-overlap"));
  EXPECT_NE(exported(replicas(", zero: {stage: 3}"), ExportTarget::megatron).refused.find("ZeRO-3"),
            std::string::npos);
}

TEST(Export, MegatronGetsLayersThatDiffer) {
  const std::string model =
      "schema: orrery/model/1\nname: latent\nsource: here\nlayers: 12\nhidden: 256\nheads: 8\n"
      "head_dim: 32\nkv_rank: 64\nquery_rank: 96\nrotary_dim: 16\nvalue_dim: 48\nffn: 128\n"
      "vocabulary: 1024\nexperts: 8\ntop_k: 2\nshared_ffn: 160\ndense_layers: 3\n"
      "dense_ffn: 512\n";
  const Exported file = exported(uneven_pipelines(), ExportTarget::megatron, "", model);
  ASSERT_EQ(file.refused, "");
  EXPECT_TRUE(
      file.has("  --multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 "
               "--qk-pos-emb-head-dim 16 --v-head-dim 48"))
      << file.text;
  EXPECT_TRUE(file.has("  --q-lora-rank 96"));
  EXPECT_TRUE(file.has("  --ffn-hidden-size 512"));
  EXPECT_TRUE(file.has("  --moe-ffn-hidden-size 128"));
  EXPECT_TRUE(file.has("  --moe-shared-expert-intermediate-size 160"));
  EXPECT_TRUE(file.has("  --moe-layer-freq '([0]*3+[1]*9)'"));
  const auto refused = [&](ExportTarget to, const std::string& more) {
    return exported(uneven_pipelines(), to, "", model + more).refused;
  };
  EXPECT_NE(refused(ExportTarget::torchtitan, "").find("latent attention"), std::string::npos);
  EXPECT_NE(refused(ExportTarget::megatron, "window: 128\n").find("a window of tokens"),
            std::string::npos);
}

/// Two chunks of each stage; a GPU each.
std::string interleaved(int stages, int micro_batches) {
  std::string text =
      "schedule: interleaved_1f1b\nvirtual_stages: 2\npipelines:\n"
      "  - {micro_batches: " +
      std::to_string(micro_batches) + ", micro_batch_size: 1, stages: [";
  const int chunks = 2 * stages;
  for (int s = 0; s < stages; ++s) {
    text += "{segments: [";
    for (const int chunk : {s, s + stages}) {
      text += "{blocks: " + std::to_string(14 * chunk / chunks) + "-" +
              std::to_string(14 * (chunk + 1) / chunks - 1) +
              ", virtual_stage: " + std::to_string(chunk / stages) + ", groups: [{devices: [" +
              std::to_string(s) + "]}]}, ";
    }
    text += "]}, ";
  }
  return text + "]}\n";
}

TEST(Export, InterleavedSchedulesNeedStagesAndRoundsOfMicroBatches) {
  const auto refused = [](int stages, int micro_batches, ExportTarget to) {
    return exported(interleaved(stages, micro_batches), to).refused;
  };
  for (const ExportTarget to :
       {ExportTarget::megatron, ExportTarget::torchtitan, ExportTarget::deepspeed}) {
    EXPECT_EQ(refused(1, 4, to), "virtual stages of a single stage: no pipeline to interleave");
  }
  EXPECT_EQ(refused(3, 9, ExportTarget::megatron), "");
  for (const int micro_batches : {2, 8}) {
    EXPECT_EQ(refused(3, micro_batches, ExportTarget::megatron),
              std::to_string(micro_batches) +
                  " micro-batches, interleaved in 3 stages: it takes a multiple of the stages");
    EXPECT_EQ(refused(3, micro_batches, ExportTarget::torchtitan), "");
  }
  EXPECT_EQ(refused(3, 11, ExportTarget::torchtitan),
            "11 micro-batches, interleaved in 3 stages: it takes a multiple of the 3 rounds");
  EXPECT_EQ(refused(3, 8, ExportTarget::flagscale), "virtual stages");
}

TEST(Export, TorchtitanFillsItsPipelines) {
  std::string few = uneven_pipelines();
  for (std::size_t at; (at = few.find("micro_batches: 4")) != std::string::npos;) {
    few.replace(at, 16, "micro_batches: 1");
  }
  EXPECT_EQ(exported(few, ExportTarget::torchtitan).refused,
            "1 micro-batches in 2 stages: it takes at least one for each");
  EXPECT_EQ(exported(few, ExportTarget::megatron).refused, "");
}

TEST(Export, ModelsThatMegatronDoesNotHaveAreRefused) {
  const std::string model =
      "schema: orrery/model/1\nname: encoder\nsource: here\nlayers: 12\nhidden: 256\nheads: 8\n"
      "ffn: 512\nvocabulary: 1024\nactivation: relu\ncausal: false\n";
  for (const ExportTarget to : {ExportTarget::megatron, ExportTarget::flagscale}) {
    const std::string refused = exported(uneven_pipelines(), to, "", model).refused;
    EXPECT_NE(refused.find("ReLU"), std::string::npos) << refused;
    EXPECT_NE(refused.find("attention to later tokens"), std::string::npos) << refused;
  }
  // The model is the user's own there.
  const Exported torchtitan = exported(uneven_pipelines(), ExportTarget::torchtitan, "", model);
  EXPECT_NE(torchtitan.text.find("8 heads, relu, not causal)"), std::string::npos)
      << torchtitan.text << torchtitan.refused;
}

TEST(Export, PrecisionsThatATrainerLacksAreRefusedAndTf32IsAskedFor) {
  const auto refused = [&](ExportTarget to, const char* dtype) {
    const std::string plan = replicas(to == ExportTarget::torchtitan ? ", zero: {stage: 2}" : "");
    return exported(plan, to, "", "", dtype).refused;
  };
  for (const auto& [to, dtypes] : {
           std::pair{ExportTarget::megatron, std::vector{"fp64"}},
           {ExportTarget::flagscale, {"fp64"}},
           {ExportTarget::torchtitan, {"fp64", "fp16", "fp4"}},
           {ExportTarget::deepspeed, {"fp64", "fp8", "mxfp8", "fp4"}},
       }) {
    for (const char* dtype : {"fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "fp4", "fp64"}) {
      const bool lacks = std::any_of(dtypes.begin(), dtypes.end(),
                                     [&](const std::string& one) { return one == dtype; });
      EXPECT_EQ(refused(to, dtype).starts_with(std::string(dtype) + ": it trains in"), lacks)
          << static_cast<int>(to) << " " << dtype << ": " << refused(to, dtype);
    }
  }
  const auto tf32 = [](ExportTarget to, const std::string& plan) {
    return exported(plan, to, "", "", "tf32");
  };
  const Exported torchtitan = tf32(ExportTarget::torchtitan, replicas(", zero: {stage: 2}"));
  EXPECT_TRUE(torchtitan.has("mixed_precision_param = \"float32\"")) << torchtitan.text;
  EXPECT_NE(torchtitan.text.find("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"), std::string::npos);
  EXPECT_TRUE(tf32(ExportTarget::megatron, replicas(""))
                  .has("export "
                       "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=${TORCH_ALLOW_TF32_CUBLAS_OVERRIDE:-1}"));
  EXPECT_TRUE(tf32(ExportTarget::flagscale, replicas(""))
                  .has("# The experiment's envs need TORCH_ALLOW_TF32_CUBLAS_OVERRIDE: 1."));
  EXPECT_NE(tf32(ExportTarget::deepspeed, replicas("")).note.find("TF32"), std::string::npos);
}

TEST(Export, SplitTensorsAndSequencesHaveOneQueueOfKernels) {
  const std::string line = "export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}";
  const Exported split = exported(replicas(""), ExportTarget::megatron);
  EXPECT_TRUE(split.has(line)) << split.text << split.refused;
  EXPECT_LT(split.text.find(line), split.text.find("torchrun --nnodes"));
  EXPECT_FALSE(exported(uneven_pipelines(), ExportTarget::megatron).has(line));
  EXPECT_TRUE(exported(replicas(""), ExportTarget::flagscale)
                  .has("# The experiment's envs need CUDA_DEVICE_MAX_CONNECTIONS: 1."));
}

TEST(Export, OptimizerStatesInHostMemoryAreShardedOnes) {
  const auto refused = [](double share, const std::string& zero, ExportTarget to) {
    return exported("optimizer_offload: " + std::to_string(share) + "\n" + replicas(zero), to)
        .refused;
  };
  const std::string one = ", zero: {stage: 1}", three = ", zero: {stage: 3}";
  for (const ExportTarget to : {ExportTarget::megatron, ExportTarget::deepspeed}) {
    EXPECT_NE(refused(1, "", to).find("host memory without ZeRO:"), std::string::npos);
    EXPECT_EQ(refused(1, one, to), "");
  }
  EXPECT_EQ(refused(0.5, one, ExportTarget::megatron), "");
  EXPECT_EQ(refused(0.5, three, ExportTarget::deepspeed), "");
  EXPECT_NE(refused(0.5, one, ExportTarget::deepspeed).find("without ZeRO-3"), std::string::npos);
}

/// Two groups of two GPUs that share the experts, in one stage.
std::string shared_experts(const std::string& group, const std::string& more) {
  std::string text =
      "pipelines:\n  - {micro_batches: 4, micro_batch_size: 4, stages: [{segments: [{blocks: 0-13, "
      "groups: [";
  for (const char* devices : {"0, 1", "2, 3"}) {
    text +=
        "{devices: [" + std::string(devices) + "], tensor_parallel: 2, samples: 2" + group + "}, ";
  }
  return text + "], expert_parallel: 2" + more + "}]}]}\n";
}

TEST(Export, GroupsThatShareExpertsAreReplicasOfTheTrainer) {
  const std::string model =
      "schema: orrery/model/1\nname: experts\nsource: here\nlayers: 12\nhidden: 256\nheads: 8\n"
      "ffn: 128\nvocabulary: 1024\nexperts: 8\ntop_k: 2\n";
  const std::string along = ", sequence: megatron";
  const Exported megatron = exported(shared_experts(along, ""), ExportTarget::megatron, "", model);
  ASSERT_EQ(megatron.refused, "");
  EXPECT_TRUE(
      megatron.has("  --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"));
  EXPECT_TRUE(megatron.has("  --micro-batch-size 2"));
  EXPECT_TRUE(megatron.has("  --global-batch-size 16"));
  EXPECT_TRUE(megatron.has("  n-1) node_rank=1 gpus=0,1 processes=2 ;;")) << megatron.text;
  const Exported torchtitan =
      exported(shared_experts(along, ", zero: {stage: 2}"), ExportTarget::torchtitan, "", model);
  ASSERT_EQ(torchtitan.refused, "");
  EXPECT_TRUE(torchtitan.has("expert_parallel_degree = 2"));
  EXPECT_TRUE(torchtitan.has("expert_tensor_parallel_degree = 2"));
  EXPECT_TRUE(torchtitan.has("data_parallel_shard_degree = 2"));
  const auto refused = [&](const std::string& plan, ExportTarget to) {
    return exported(plan, to, "", model).refused;
  };
  EXPECT_NE(refused(shared_experts("", ""), ExportTarget::megatron)
                .find("without Megatron's sequence parallelism"),
            std::string::npos);
  EXPECT_NE(refused(shared_experts(along, ""), ExportTarget::torchtitan).find("of 1 shards"),
            std::string::npos);
  std::string unlike = shared_experts(along, "");
  unlike.replace(unlike.find("samples: 2"), 10, "samples: 1");
  unlike.replace(unlike.find("micro_batch_size: 4"), 19, "micro_batch_size: 3");
  EXPECT_NE(refused(unlike, ExportTarget::megatron).find("groups of a stage that differ"),
            std::string::npos);
}

/// Stages of two GPUs that share the experts, in chunks of the layers: "0-6", ...
std::string staged_experts(const std::string& schedule,
                           const std::vector<std::vector<std::string>>& chunks) {
  std::string text = schedule + "pipelines:\n  - {micro_batches: 4, micro_batch_size: 4, stages: [";
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    const int first = 2 * static_cast<int>(s);
    text += "{segments: [";
    for (std::size_t c = 0; c < chunks[s].size(); ++c) {
      text += "{blocks: " + chunks[s][c] + ", virtual_stage: " + std::to_string(c) + ", groups: [";
      for (const int device : {first, first + 1}) {
        text += "{devices: [" + std::to_string(device) + "], samples: 2}, ";
      }
      text += "], expert_parallel: 2}, ";
    }
    text += "]}, ";
  }
  return text + "]}\n";
}

TEST(Export, DispatchOverlapsWhereMegatronCan) {
  const std::string model =
      "schema: orrery/model/1\nname: experts\nsource: here\nlayers: 12\nhidden: 256\nheads: 8\n"
      "ffn: 128\nvocabulary: 1024\nexperts: 8\ntop_k: 2\n";
  const std::string flag = "  --overlap-moe-expert-parallel-comm";
  const std::string notice = "# Dispatch and combine of experts overlap with nothing";
  const auto hidden = [&](const std::string& plan) {
    return exported(plan, ExportTarget::megatron, "expert_parallel", model);
  };
  const std::string along = ", sequence: megatron";
  for (const std::string& plan :
       {shared_experts(along, ""), staged_experts("schedule: interleaved_1f1b\nvirtual_stages: 2\n",
                                                  {{"0-3", "7-9"}, {"4-6", "10-13"}})}) {
    const Exported file = hidden(plan);
    EXPECT_TRUE(file.has(flag)) << file.text << file.refused;
    EXPECT_EQ(file.text.find(notice), std::string::npos);
    EXPECT_EQ(file.text.find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos);
  }
  for (const std::string& plan :
       {shared_experts(along, ", recompute: full"), staged_experts("", {{"0-6"}, {"7-13"}})}) {
    const Exported file = hidden(plan);
    EXPECT_NE(file.text.find(notice), std::string::npos) << file.text << file.refused;
    EXPECT_FALSE(file.has(flag));
  }
  EXPECT_NE(hidden(shared_experts(along, ", recompute: full"))
                .text.find("export CUDA_DEVICE_MAX_CONNECTIONS="),
            std::string::npos);
  const Exported halves =
      exported(shared_experts(along, ""), ExportTarget::megatron, "", model, "fp16");
  EXPECT_NE(halves.refused.find("expert parallelism in fp16"), std::string::npos) << halves.text;
}

TEST(Export, HostsOfOrreryExecuteAreNumberedAsDevicesOfTheCluster) {
  const auto alone = [](const char* device) {
    return "pipelines:\n  - {micro_batches: 4, micro_batch_size: 1, stages: [{segments: [" +
           segment(0, 13, device, 1, 1, "") + "]}]}\n";
  };
  const Exported second = exported(alone("3"), ExportTarget::torchrun);
  EXPECT_TRUE(second.has("#   --hosts n-0:2,n-1:2")) << second.text << second.refused;
  const Exported first = exported(alone("1"), ExportTarget::torchrun);
  EXPECT_TRUE(first.has("#   --hosts n-0:2")) << first.text << first.refused;
}

/// ASTRA-sim's broadcasts wait for nobody.
TEST(Export, BroadcastsAreGathersForAstraSim) {
  using calibration::ChakraCollective;
  std::string plan = "pipelines:\n";
  for (const char* device : {"0", "1", "2", "3"}) {
    plan += "  - {micro_batches: 4, micro_batch_size: 1, stages: [{segments: [" +
            segment(0, 13, device, 1, 1, ", zero: {stage: 1}") + "]}]}\n";
  }
  const auto collectives = [&](ExportTarget to) {
    const support::TempFolder folder;
    const std::string out = folder / "traces";
    const Exported file = exported(plan, to, "", "", "", out);
    EXPECT_EQ(file.refused, "");
    const auto trace = calibration::parse_chakra(read_text_file(out + "/chakra.0.et"));
    std::vector<std::pair<std::string, std::pair<std::int64_t, std::int64_t>>> found;
    for (const calibration::ChakraNode& node : std::get<calibration::ChakraTrace>(trace).nodes) {
      if (!node.number("comm_type")) continue;
      found.push_back({node.name, {*node.number("comm_type"), *node.number("comm_size")}});
    }
    return found;
  };
  const auto here = collectives(ExportTarget::chakra);
  const auto there = collectives(ExportTarget::astra_sim);
  ASSERT_EQ(here.size(), there.size());
  int broadcasts = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].first, there[i].first);
    const auto [kind, size] = here[i].second;
    if (kind != static_cast<std::int64_t>(ChakraCollective::broadcast)) {
      EXPECT_EQ(here[i], there[i]);
      continue;
    }
    ++broadcasts;
    // Of four members each puts in a third: three of them cross each link.
    EXPECT_EQ(there[i].second,
              std::pair(static_cast<std::int64_t>(ChakraCollective::all_gather), size / 3));
  }
  EXPECT_GT(broadcasts, 0);
}

TEST(Export, GathersInFrontOfTheForwardPassAreMegatrons) {
  const std::string plan = "communication: {gradient_overlap: true, parameter_overlap: true}\n" +
                           replicas(", zero: {stage: 1}");
  const Exported file = exported(plan, ExportTarget::megatron);
  EXPECT_TRUE(file.has("  --overlap-grad-reduce")) << file.refused;
  EXPECT_TRUE(file.has("  --overlap-param-gather"));
  EXPECT_NE(exported(plan, ExportTarget::deepspeed).refused.find("parameter_overlap"),
            std::string::npos);
}

}  // namespace
}  // namespace orrery::experiments::export_test
