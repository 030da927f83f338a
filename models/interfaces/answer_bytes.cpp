#include "models/interfaces/answer_bytes.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::models {
namespace {

// A Format is a writer or a reader. Each struct lists its fields once, for both directions.

class Writing {
 public:
  explicit Writing(ByteWriter& out) : out_(out) {}
  template <PlainNumber T>
  void number(const T& value) {
    out_.put(value);
  }
  void text(const std::string& value) { out_.put(std::string_view(value)); }
  template <class T, class F>
  void list(const std::vector<T>& items, const F& each) {
    out_.put(static_cast<std::uint64_t>(items.size()));
    for (const T& item : items) each(item);
  }
  template <class T, class F>
  void maybe(const std::optional<T>& value, const F& each) {
    out_.put(value.has_value());
    if (value) each(*value);
  }

 private:
  ByteWriter& out_;
};

class Reading {
 public:
  explicit Reading(ByteReader& in) : in_(in) {}
  template <PlainNumber T>
  void number(T& value) {
    value = in_.get<T>();
  }
  void text(std::string& value) { value = in_.text(); }
  template <class T, class F>
  void list(std::vector<T>& items, const F& each) {
    items.resize(in_.count());
    for (T& item : items) each(item);
  }
  template <class T, class F>
  void maybe(std::optional<T>& value, const F& each) {
    value.reset();
    if (in_.get<bool>()) each(value.emplace());
  }

 private:
  ByteReader& in_;
};

// Structured bindings name every field: a new one does not compile until it is listed here.

template <class Format, class Group>
void group_fields(Format& f, Group& group) {
  auto& [devices, tensor_parallel, sequence, sequence_degree, samples, state_weight, experts] =
      group;
  f.list(devices, [&](auto& device) { f.number(device.value); });
  f.number(tensor_parallel);
  f.number(sequence);
  f.number(sequence_degree);
  f.number(samples);
  f.number(state_weight);
  f.number(experts);
}

template <class Format, class Segment>
void segment_fields(Format& f, Segment& segment) {
  auto& [first_block, last_block, virtual_stage, groups, recompute, zero, expert_parallel] =
      segment;
  auto& [zero_stage, shard_group] = zero;
  f.number(first_block.value);
  f.number(last_block.value);
  f.number(virtual_stage);
  f.list(groups, [&](auto& group) { group_fields(f, group); });
  f.number(recompute);
  f.number(zero_stage);
  f.number(shard_group);
  f.number(expert_parallel);
}

template <class Format, class Pipeline>
void pipeline_fields(Format& f, Pipeline& pipeline) {
  auto& [micro_batches, micro_batch_size, length_range, stages, reroutes] = pipeline;
  f.number(micro_batches);
  f.number(micro_batch_size);
  f.maybe(length_range, [&](auto& range) {
    auto& [shortest, longest] = range;
    f.number(shortest);
    f.number(longest);
  });
  f.list(stages, [&](auto& stage) {
    auto& [segments] = stage;
    f.list(segments, [&](auto& segment) { segment_fields(f, segment); });
  });
  f.list(reroutes, [&](auto& reroute) {
    auto& [stage, micro_batch, to_pipeline] = reroute;
    f.number(stage);
    f.number(micro_batch);
    f.number(to_pipeline);
  });
}

template <class Format, class Plan>
void plan_fields(Format& f, Plan& plan) {
  auto& [schedule, virtual_stages, communication, redundancy, optimizer, optimizer_offload,
         pipelines, predicted, planner, cluster_hash, workload_hash] = plan;
  auto& [activation_transfer, gradient_overlap, parameter_overlap, bucket] = communication;
  f.number(schedule);
  f.number(virtual_stages);
  f.number(activation_transfer);
  f.number(gradient_overlap);
  f.number(parameter_overlap);
  f.number(bucket.value);
  f.number(redundancy);
  f.number(optimizer);
  f.number(optimizer_offload);
  f.list(pipelines, [&](auto& pipeline) { pipeline_fields(f, pipeline); });
  f.maybe(predicted, [&](auto& prediction) {
    auto& [iteration_time, peak_memory] = prediction;
    f.number(iteration_time.value);
    f.number(peak_memory.value);
  });
  f.text(planner);
  f.text(cluster_hash);
  f.text(workload_hash);
}

template <class Format, class Evaluation>
void evaluation_fields(Format& f, Evaluation& evaluation) {
  auto& [iteration_time, memory, breakdown, tokens_per_second, mfu, hfu, dollars, joules,
         pipeline_times, synchronization] = evaluation;
  f.number(iteration_time.value);
  f.list(memory.by_gpu_type, [&](auto& use) {
    auto& [gpu, device, pipeline, stage, need, have] = use;
    f.text(gpu);
    f.number(device.value);
    f.number(pipeline);
    f.number(stage);
    f.number(need.value);
    f.number(have.value);
  });
  f.maybe(memory.host, [&](auto& use) {
    auto& [node, need, have] = use;
    f.text(node);
    f.number(need.value);
    f.number(have.value);
  });
  auto& [compute, tensor_parallel, zero, pipeline, data_parallel, step, bubble] = breakdown;
  for (auto* part :
       {&compute, &tensor_parallel, &zero, &pipeline, &data_parallel, &step, &bubble}) {
    f.number(part->value);
  }
  f.number(tokens_per_second);
  f.number(mfu);
  f.number(hfu);
  f.maybe(dollars, [&](auto& price) { f.number(price.value); });
  f.maybe(joules, [&](auto& energy) { f.number(energy.value); });
  f.list(pipeline_times, [&](auto& time) { f.number(time.value); });
  f.maybe(synchronization, [&](auto& time) { f.number(time.value); });
}

}  // namespace

void put(ByteWriter& out, const ir::Plan& plan) {
  Writing writing(out);
  plan_fields(writing, plan);
}

void put(ByteWriter& out, const Evaluation& evaluation) {
  Writing writing(out);
  evaluation_fields(writing, evaluation);
}

ir::Plan get_plan(ByteReader& in) {
  ir::Plan plan;
  Reading reading(in);
  plan_fields(reading, plan);
  return plan;
}

Evaluation get_evaluation(ByteReader& in) {
  Evaluation evaluation;
  Reading reading(in);
  evaluation_fields(reading, evaluation);
  return evaluation;
}

}  // namespace orrery::models
