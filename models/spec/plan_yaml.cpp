#include "models/spec/plan_yaml.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/config/sparse.h"
#include "models/spec/library.h"
#include "models/spec/plan_file.h"

namespace orrery::ir {
namespace {

using config::Value;

/// Larger than that of any device or block that can be described; the next one is a number, too.
constexpr std::int64_t kLargestId = (1 << 30) - 1;
constexpr std::int64_t kMostDevices = 1 << 20;

/// Reads "7" or "0-7".
std::optional<std::pair<std::int32_t, std::int32_t>> parse_range(const Value& value,
                                                                 std::string& error) {
  if (!value.is_scalar()) {
    error = fmt::format("expected a number or a range, got {}", kind_text(value));
    return std::nullopt;
  }
  config::TextError detail;
  const std::size_t dash = value.text.find('-', 1);
  const auto first = config::parse_integer(value.text.substr(0, dash), 0, kLargestId, detail);
  const auto last = dash == std::string::npos || !first
                        ? first
                        : config::parse_integer(value.text.substr(dash + 1), 0, kLargestId, detail);
  if (!first || !last) {
    error = fmt::format("expected a number or a range, got {}", kind_text(value));
    return std::nullopt;
  }
  if (*last < *first) {
    error = fmt::format("range {} ends before it begins", kind_text(value));
    return std::nullopt;
  }
  return std::pair{static_cast<std::int32_t>(*first), static_cast<std::int32_t>(*last)};
}

std::string range_text(std::int32_t first, std::int32_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

Value compact(const std::vector<DeviceId>& devices) {
  Value list = Value::list({});
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t end = i + 1;
    while (end < devices.size() && devices[end].value == devices[end - 1].value + 1) ++end;
    list.items.push_back(Value::scalar(range_text(devices[i].value, devices[end - 1].value)));
    i = end;
  }
  return list;
}

void describe_devices(config::Visitor& v, std::vector<DeviceId>& devices) {
  Value value = compact(devices);
  v.required("devices", value, "ids and ranges of ids in rank order, as in [0-7, 12]");
  if (!v.reading()) return;
  devices.clear();
  if (value.is_scalar()) value = Value::list({value});
  if (!value.is_list()) return v.problem("devices", "expected a list of devices", "as in [0-7]");
  for (const Value& item : value.items) {
    std::string error;
    const auto range = parse_range(item, error);
    if (!range) return v.problem("devices", error, "as in [0-7, 12]");
    if (std::ssize(devices) + range->second - range->first >= kMostDevices) {
      return v.problem("devices", fmt::format("more than {} devices", kMostDevices));
    }
    for (std::int32_t id = range->first; id <= range->second; ++id) devices.push_back({id});
  }
}

void describe_blocks(config::Visitor& v, Segment& segment) {
  Value value;
  if (segment.first_block.valid() && segment.last_block.valid()) {
    value = Value::scalar(range_text(segment.first_block.value, segment.last_block.value));
  }
  v.required("blocks", value, "first and last block of the workload, as in 0-20");
  if (!v.reading()) return;
  std::string error;
  const auto range = parse_range(value, error);
  if (!range) return v.problem("blocks", error, "as in 0-20");
  segment.first_block = {range->first};
  segment.last_block = {range->second};
}

/// A pipeline, and how often it stands in the plan.
struct PipelineText {
  Pipeline pipeline;
  std::int64_t copies = 1;
  std::int64_t device_step = 0;
};

void describe(config::Visitor& v, PipelineText& text) {
  describe(v, text.pipeline);
  if (v.dumping()) return;  // Each pipeline for itself.
  v.optional("copies", text.copies, "so many pipelines like this one");
  v.optional("device_step", text.device_step,
             "ids of a copy's devices above those of the one before");
  v.between<std::int64_t>("copies", text.copies, 1, kMostDevices);
  v.between<std::int64_t>("device_step", text.device_step, 0, kMostDevices);
  if (!v.reading() || text.copies == 1) return;
  if (text.device_step == 0) v.problem("device_step", "copies need devices of their own");
  if (!text.pipeline.reroutes.empty()) v.problem("reroutes", "a pipeline with copies has none");
}

std::int64_t devices_of(const Pipeline& pipeline) {
  std::size_t devices = 0;
  for (const Stage& stage : pipeline.stages) {
    for (const Segment& segment : stage.segments) {
      for (const Group& group : segment.groups) devices += group.devices.size();
    }
  }
  return static_cast<std::int64_t>(devices);
}

/// Appends the pipeline as often as it says; false: too many devices, or their ids grow too large.
bool append_copies(const PipelineText& text, std::vector<Pipeline>& pipelines) {
  if (text.copies > 1 && devices_of(text.pipeline) * text.copies > kMostDevices) return false;
  for (std::int64_t copy = 0; copy < text.copies; ++copy) {
    Pipeline& added = pipelines.emplace_back(text.pipeline);
    for (Stage& stage : added.stages) {
      for (Segment& segment : stage.segments) {
        for (Group& group : segment.groups) {
          for (DeviceId& device : group.devices) {
            const std::int64_t id = device.value + copy * text.device_step;
            if (id > kLargestId) return false;
            device = {static_cast<std::int32_t>(id)};
          }
        }
      }
    }
  }
  return true;
}

}  // namespace

void describe(config::Visitor& v, LengthRange& range) {
  v.title("Length range");
  v.doc("Sequence lengths in tokens, both ends included.");
  v.required("shortest", range.shortest, "tokens");
  v.required("longest", range.longest, "tokens");
  v.not_negative("shortest", range.shortest);
  if (v.reading() && range.longest < range.shortest) {
    v.problem("longest", "is less than `shortest`");
  }
}

void describe(config::Visitor& v, Zero& zero) {
  v.title("ZeRO");
  v.doc("Sharding of model states over data-parallel replicas.");
  v.optional("stage", zero.stage, "0 none, 1 optimizer states, 2 and gradients, 3 and parameters");
  v.optional("shard_group", zero.shard_group, "replicas per shard group; 0: all replicas");
  v.between("stage", zero.stage, 0, 3);
  v.not_negative("shard_group", zero.shard_group);
}

void describe(config::Visitor& v, Group& group) {
  v.title("Group");
  v.doc("One tensor-parallel group: tensor_parallel x sequence_degree devices.");
  describe_devices(v, group.devices);
  v.optional("tensor_parallel", group.tensor_parallel, "degree; neighbors in `devices` are peers");
  v.optional("sequence", group.sequence, "how the sequence dimension is split");
  v.optional("sequence_degree", group.sequence_degree, "of ulysses and ring");
  v.optional("samples", group.samples, "of each micro-batch; groups add up to micro_batch_size");
  v.optional("state_weight", group.state_weight,
             "share of the states that ZeRO divides, relative to other replicas of its blocks");
  v.optional("experts", group.experts,
             "of each block that it holds, of those that expert_parallel groups hold together; 0: "
             "as many as each of them");
  v.at_least("tensor_parallel", group.tensor_parallel, 1);
  v.at_least("sequence_degree", group.sequence_degree, 1);
  v.at_least("samples", group.samples, 1);
  v.between("state_weight", group.state_weight, 1, ir::kMostStateWeight);
  v.not_negative("experts", group.experts);
}

void describe(config::Visitor& v, Segment& segment) {
  v.title("Segment");
  v.doc("A run of blocks with one strategy.");
  describe_blocks(v, segment);
  v.optional("virtual_stage", segment.virtual_stage, "chunk that it belongs to");
  v.required("groups", segment.groups, "take consecutive sample ranges in this order");
  v.optional("recompute", segment.recompute, "what the backward pass recomputes");
  v.optional("zero", segment.zero, "sharding of model states");
  v.optional("expert_parallel", segment.expert_parallel,
             "so many consecutive groups hold one copy of the experts together");
  v.not_negative("virtual_stage", segment.virtual_stage);
  v.at_least("expert_parallel", segment.expert_parallel, 1);
  v.not_empty("groups", segment.groups);
}

void describe(config::Visitor& v, Stage& stage) {
  v.title("Stage");
  v.required("segments", stage.segments, "all on the same devices");
  v.not_empty("segments", stage.segments);
}

void describe(config::Visitor& v, Reroute& reroute) {
  v.title("Reroute");
  v.doc("A micro-batch that one stage of another pipeline computes.");
  v.required("stage", reroute.stage, "that the micro-batch skips");
  v.required("micro_batch", reroute.micro_batch, "of this pipeline, from 0");
  v.required("to_pipeline", reroute.to_pipeline, "whose stage of the same number computes it");
  v.not_negative("stage", reroute.stage);
  v.not_negative("micro_batch", reroute.micro_batch);
  v.not_negative("to_pipeline", reroute.to_pipeline);
}

void describe(config::Visitor& v, Pipeline& pipeline) {
  v.title("Pipeline");
  v.doc("One replica of the model.");
  v.required("micro_batches", pipeline.micro_batches, "per step");
  v.required("micro_batch_size", pipeline.micro_batch_size, "samples");
  v.optional("length_range", pipeline.length_range, "sequences that it takes");
  v.required("stages", pipeline.stages, "in the order of the forward pass");
  v.optional("reroutes", pipeline.reroutes, "micro-batches computed elsewhere");
  v.at_least("micro_batches", pipeline.micro_batches, 1);
  v.at_least("micro_batch_size", pipeline.micro_batch_size, 1);
  v.not_empty("stages", pipeline.stages);
}

void describe(config::Visitor& v, Communication& communication) {
  v.title("Communication");
  v.optional("activation_transfer", communication.activation_transfer,
             "how activations cross between tensor-parallel groups");
  v.optional("gradient_overlap", communication.gradient_overlap,
             "gradients synchronize while the backward pass runs");
  if (!v.dumping() || communication.parameter_overlap) {
    v.optional("parameter_overlap", communication.parameter_overlap,
               "with ZeRO-1 and 2, updated parameters are gathered while the next iteration's "
               "forward passes run; needs gradient_overlap");
  }
  v.optional("bucket", communication.bucket,
             "gradient bytes synchronized together; 0: all blocks with the same owners");
  v.not_negative("bucket", communication.bucket);
}

void describe(config::Visitor& v, Prediction& prediction) {
  v.title("Prediction");
  v.doc("What the planner itself believed.");
  v.required("iteration_time", prediction.iteration_time, "of one step");
  v.required("peak_memory", prediction.peak_memory, "largest over all devices");
}

void describe(config::Visitor& v, Plan& plan) {
  v.schema("orrery/plan", 1);
  v.title("Plan");
  v.doc("How a job is laid over devices.");
  v.optional("planner", plan.planner, "who made it");
  v.optional("cluster_hash", plan.cluster_hash, "of the cluster that it was made for");
  v.optional("workload_hash", plan.workload_hash, "of the workload that it was made for");
  v.optional("schedule", plan.schedule, "order of passes inside a pipeline");
  v.optional("virtual_stages", plan.virtual_stages, "chunks per stage; 1 unless interleaved");
  v.optional("communication", plan.communication, "options");
  v.optional("redundancy", plan.redundancy, "copies of stage state kept for recovery");
  v.optional("optimizer", plan.optimizer,
             "steps of all ranks together, or each stage when it is ready (staggered)");
  v.optional("optimizer_offload", plan.optimizer_offload,
             "share of the optimizer states in host memory, which the CPU steps");
  v.optional("predicted", plan.predicted, "by the planner");
  std::vector<PipelineText> texts;
  for (const Pipeline& pipeline : plan.pipelines) texts.push_back({pipeline, 1, 0});
  v.required("pipelines", texts, "replicas of the model");
  v.at_least("virtual_stages", plan.virtual_stages, 1);
  v.between("optimizer_offload", plan.optimizer_offload, 0.0, 1.0);
  v.not_empty("pipelines", texts);
  if (!v.reading()) return;
  plan.pipelines.clear();
  for (const PipelineText& text : texts) {
    if (!append_copies(text, plan.pipelines)) {
      return v.problem("pipelines", fmt::format("copies have more than {} devices, or ids above {}",
                                                kMostDevices, kLargestId));
    }
  }
}

}  // namespace orrery::ir

namespace orrery::models {

ir::Plan load_plan(const std::string& path, config::Diagnostics& diagnostics) {
  return load_plan_file(path, diagnostics).plan;
}

std::string dump_plan(const ir::Plan& plan) {
  return config::to_yaml(config::sparse(plan, {"schedule"}));
}

std::string plan_hash(const ir::Plan& plan) {
  ir::Plan bare = plan;
  bare.predicted.reset();
  bare.planner.clear();
  return content_hash(dump_plan(bare));
}

}  // namespace orrery::models
