// The values of the contracts as records: plans, programs, run logs, profiles, clusters, workloads,
// jobs, traces, recovery decisions.
#include "models/cost/collective.h"
#include "models/cost/kernels.h"
#include "models/cost/memory.h"
#include "models/cost/pricer.h"
#include "models/interfaces/names.h"
#include "models/ir/breakdown.h"
#include "models/ir/names.h"
#include "models/lower/lower.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/runtime.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"
#include "planners/planner.h"
#include "sim/iteration/iteration.h"
#include "sim/replay/replay.h"
#include "tools/python/bindings.h"
#include "tools/python/context.h"
#include "traces/trace.h"

namespace orrery::python {
namespace {

void bind_plan(py::module_& m) {
  ORRERY_RECORD(m, ir::LengthRange, "Sequence lengths in tokens, both ends included.", shortest,
                longest);
  ORRERY_RECORD(m, ir::Zero, "Sharding of model states over data-parallel replicas.", stage,
                shard_group);
  ORRERY_RECORD(m, ir::Group, "A tensor-parallel group: its devices in rank order.", devices,
                tensor_parallel, sequence, sequence_degree, samples, state_weight, experts);
  ORRERY_RECORD(m, ir::Segment, "A run of blocks, both ends included, with one strategy.",
                first_block, last_block, virtual_stage, groups, recompute, zero, expert_parallel);
  ORRERY_RECORD(m, ir::Stage, "Segments on the same devices.", segments);
  ORRERY_RECORD(m, ir::Reroute, "A micro-batch that one stage of another pipeline computes.", stage,
                micro_batch, to_pipeline);
  ORRERY_RECORD(m, ir::Pipeline, "One replica of the model: a chain of stages.", micro_batches,
                micro_batch_size, length_range, stages, reroutes);
  ORRERY_RECORD(m, ir::Communication, "How activations cross and gradients synchronize.",
                activation_transfer, gradient_overlap, parameter_overlap, bucket);
  ORRERY_RECORD(m, ir::Prediction, "What the planner itself believed.", iteration_time,
                peak_memory);
  ORRERY_RECORD(m, ir::Plan, "How a job is laid over devices.", schedule, virtual_stages,
                communication, redundancy, optimizer, optimizer_offload, pipelines, predicted,
                planner, cluster_hash, workload_hash);
}

void bind_program(py::module_& m) {
  ORRERY_RECORD(m, ir::ModelShape, "The dimensions of a transformer.", name, layers, hidden, heads,
                kv_heads, head_dim, ffn, vocabulary, positions, normalization, activation, causal,
                biases, tied_embeddings, experts, top_k, capacity_factor, expert_imbalance,
                shared_ffn, dense_layers, moe_interval, dense_ffn, window, global_interval,
                mtp_layers, kv_rank, query_rank, rotary_dim, value_dim);
  ORRERY_RECORD(m, ir::Region, "A part of a tensor.", tensor, first_block, last_block, parameter,
                begin, end);
  ORRERY_RECORD(m, ir::BufferEffect, "What an op allocates and frees.", kind, action,
                per_micro_batch, segment, bytes);
  ORRERY_RECORD(m, ir::InnerCollective, "Collectives inside a pass.", kind, purpose, groups, count,
                bytes, bytes_per_peer);
  ORRERY_RECORD(m, ir::CommunicationGroup, "Devices that communicate, in ring order.", devices);
  using CollectivePart = ir::CollectiveShape::Part;
  ORRERY_RECORD(m, CollectivePart, "One of the equal collectives of a CollectiveShape.", group,
                bytes, member_regions);
  ORRERY_RECORD(m, ir::CollectiveShape, "Equal collectives that run concurrently.", kind, purpose,
                parts, regions);
  ORRERY_RECORD(m, ir::Rendezvous, "Ops that meet: a range of Program.members.", first_member,
                member_count);
  ORRERY_RECORD(m, ir::Collective, "One collective among ranks.", shape, members);
  ORRERY_RECORD(m, ir::Transfer, "One device-to-device path of a send.", source, destination,
                bytes);
  ORRERY_RECORD(m, ir::Op, "What a rank does once: see models/ir/program.h.", kind, stream,
                location, purpose, rank, micro_batch, segment, samples, inner, buffers, regions,
                match, transfers, bytes);
  ORRERY_RECORD(m, ir::Rank, "A participant of a program.", device, devices, pipeline, stage, group,
                position, tensor_parallel);
  ORRERY_RECORD(m, ir::SegmentInfo, "The blocks that one compute op covers, and how.", pipeline,
                stage, virtual_stage, group, first_sample, samples, first_block, last_block,
                tensor_parallel, sequence_degree, sequence, expert_parallel, recompute, zero,
                state_weight, experts, expert_samples, redundant);
  ORRERY_RECORD(m, ir::PipelineInfo, "The share of a pipeline in the global batch.", first_sample,
                micro_batches, micro_batch_size);
  ORRERY_RECORD(m, ir::ProgramHeader, "Shapes and numerics of a program.", schema, model, blocks,
                sequence_length, global_batch, dtype, optimizer, seed, schedule, optimizer_start,
                optimizer_offload, collapsed, plan_hash, cluster_hash, workload_hash);
  ORRERY_RECORD(m, ir::Program, "What every rank does in one iteration, op by op.", header,
                pipelines, ranks, segments, groups, collective_shapes, collectives, op_groups,
                members, transfer_sets, inner_sets, buffer_sets, region_sets, resident, ops,
                stream_begin, dependency_begin, dependencies);
}

void bind_run_log(py::module_& m) {
  ORRERY_RECORD(m, ir::Span, "One op of one iteration.", rank, op, start, end, inner, bytes);
  ORRERY_RECORD(m, ir::IterationMark, "When an iteration began and ended.", iteration, start, end);
  ORRERY_RECORD(m, ir::MemorySample, "Memory of a rank's device after a change.", rank, at,
                allocated);
  ORRERY_RECORD(m, ir::LinkUse, "Bytes that crossed a link in one direction.", link, capacity,
                bytes);
  ORRERY_RECORD(m, ir::LogEvent, "A mark in a run log.", at, kind, detail);
  ORRERY_RECORD(m, ir::ClockOffset, "Difference of a rank's clock to rank 0's.", rank, offset,
                uncertainty);
  ORRERY_RECORD(m, ir::RunLog, "What happened when, op by op.", schema, program_hash, source,
                generation, spans, iterations, memory, links, events, clocks);
  ORRERY_RECORD(m, ir::RankBreakdown, "Where the time of a rank's iteration goes, in ns.", compute,
                tensor_parallel, zero, pipeline, data_parallel, optimizer, bubble);
}

void bind_profile(py::module_& m) {
  ORRERY_RECORD(m, ir::Provenance, "Where a number comes from.", source, date, machine, libraries,
                samples, held_out_error);
  ORRERY_RECORD(m, ir::BlockTime, "Time of one block on one GPU, for one micro-batch.", gpu, block,
                model, pass, tensor_parallel, micro_batch_size, sequence_length, dtype, time,
                provenance);
  using EfficiencyPoint = ir::EfficiencyCurve::Point;
  ORRERY_RECORD(m, EfficiencyPoint, "A point of an EfficiencyCurve.", work, efficiency);
  ORRERY_RECORD(m, ir::EfficiencyCurve, "Achieved share of peak over FLOPs per op.", gpu, dtype,
                points, provenance);
  ORRERY_RECORD(m, ir::LinkSegment, "alpha + bytes / bandwidth from a size on.", link_class,
                from_bytes, latency, bandwidth, provenance);
  ORRERY_RECORD(m, ir::CollectiveFactor, "Measured time of a collective over its closed form.",
                collective, link_class, ranks, factor, provenance);
  ORRERY_RECORD(m, ir::MemoryOverhead, "Bytes beyond what the model of memory counts.", gpu,
                context, fragmentation, provenance);
  ORRERY_RECORD(m, ir::PassOverhead, "Time of a pass whatever its number of blocks.", gpu, pass,
                time, provenance);
  ORRERY_RECORD(m, ir::OverlapLoss, "What compute loses beside collectives.", gpu, share,
                provenance);
  ORRERY_RECORD(m, ir::ExposedCollectives, "What passes do not hide of what they overlap.", gpu,
                purpose, share, provenance);
  ORRERY_RECORD(m, ir::OptimizerTime, "fixed + parameters x per_parameter.", gpu, dtype, fixed,
                per_parameter, provenance);
  ORRERY_RECORD(m, ir::StorageTime, "Writing or reading a checkpoint.", location, write, latency,
                bandwidth, provenance);
  ORRERY_RECORD(m, ir::PhaseTime, "Duration of a phase of recovery.", phase, time, provenance);
  ORRERY_RECORD(m, ir::LayerProfile, "All layers of a model on one GPU type.", gpu, tensor_parallel,
                micro_batch_size, layer_ms, layer_mb, forward_backward_ms);
  ORRERY_RECORD(m, ir::ModelLayers, "One model in a profile of layers.", model, parameter_bytes,
                optimizer_ms, batch_generator_ms, profiles, provenance);
  using ProductRate = ir::KernelModel::Product;
  ORRERY_RECORD(m, ProductRate, "Matrix products in one number format.", dtype, best, share);
  ORRERY_RECORD(m, ir::KernelModel, "What the kernels of a GPU type reach.", gpu, multiprocessors,
                products, attention, memory, gap, unaligned, routing, provenance);
  ORRERY_RECORD(m, ir::CollectiveWay, "An algorithm and protocol of a communication library.",
                link_class, collective, algorithm, protocol, start, step, chunk, from_bytes,
                channels, channel_bandwidth, provenance);
  ORRERY_RECORD(m, ir::Profile, "Measured or published numbers about GPUs and links.", name,
                block_times, efficiencies, links, collectives, memory, pass_overheads,
                overlap_losses, exposed_collectives, optimizers, storage, phases, model_layers,
                kernels, collective_ways);
}

void bind_cluster(py::module_& m) {
  ORRERY_RECORD(m, models::GpuType, "A type of GPU.", name, vendor, peak, memory, memory_bandwidth,
                efficiency, memory_efficiency, launch, price, spot_price, power, source);
  ORRERY_RECORD(m, models::LinkClass, "A class of links, one direction.", name, bandwidth, latency,
                efficiency, shared, source, mesh);
  ORRERY_RECORD(m, models::LinkDomain, "Devices that a full-bandwidth switch joins.", members,
                link);
  ORRERY_RECORD(m, models::PcieSwitch, "GPUs behind one PCIe switch.", members, link, uplink);
  ORRERY_RECORD(m, models::Nic, "A network card; no members: all GPUs of the node.", link, members);
  ORRERY_RECORD(m, models::Node, "A node and its GPUs (indices into Cluster.gpu_types).", name,
                gpu_types, domains, pcie, nics, nvme_read, nvme_write, nvme_capacity, host_memory,
                host_memory_bandwidth, region, leaf);
  ORRERY_RECORD(m, models::Fabric, "Leaf switches under one spine, or under pods and a core.",
                leaf_uplink, leaf_latency, spine_latency, leaf_oversubscription, rails,
                leaves_per_pod, spine_uplink, spine_oversubscription, core_latency);
  ORRERY_RECORD(m, models::PairOverride, "Replaces the path between two nodes.", a, b, bandwidth,
                latency);
  ORRERY_RECORD(m, models::HostStaging, "Two vendors that talk through host memory.", vendor_a,
                vendor_b, bandwidth, latency);
  ORRERY_RECORD(m, models::ObjectStorage, "Storage outside of the cluster.", bandwidth, scope,
                latency);
  ORRERY_RECORD(m, models::Device, "Where a device is.", id, node, position, gpu_type);
  ORRERY_RECORD(m, models::Cluster, "Which GPUs are in which nodes and what connects them.", name,
                gpu_types, links, nodes, fabric, overrides, host_staging, storage, hash, devices);
  record_info<models::Cluster>().settle = [](void* cluster) {
    models::seal(*static_cast<models::Cluster*>(cluster));
  };
  ORRERY_RECORD(m, Link, "A one-way link of a topology.", name, link_class, bandwidth, latency,
                uncontended);
}

void bind_job(py::module_& m) {
  ORRERY_RECORD(m, models::Parameter, "One parameter tensor of a block.", name, elements,
                split_length, expert);
  ORRERY_RECORD(m, models::Block, "Work and bytes of a block, per sample.", kind, forward_flops,
                attention_flops, parameters, input_bytes, output_bytes, kept_split, kept_replicated,
                attention_kept, logits, memory_traffic, tensor_collectives, expert_all_to_all);
  ORRERY_RECORD(m, models::Workload, "A model as a list of blocks: embedding first, head last.",
                name, shape, sequence_length, dtype, blocks, hash);
  using LengthBucket = models::LengthDistribution::Bucket;
  ORRERY_RECORD(m, LengthBucket, "Share of sequences up to a length.", longest, share);
  ORRERY_RECORD(m, models::LengthDistribution, "Shares of sequences up to lengths.", buckets);
  ORRERY_RECORD(m, models::StateBytes, "Bytes per parameter of the model states.", weight, gradient,
                master, moments);
  ORRERY_RECORD(m, models::Allowed, "What a planner may use.", recompute, zero_stages,
                sequence_parallel, max_tensor_parallel, max_micro_batch_size, schedules,
                max_optimizer_offload);
  ORRERY_RECORD(m, models::Job, "What is trained on what batch.", global_batch, sequence_length,
                lengths, dtype, state_bytes, optimizer, gradient_synchronizations, cuda_graphs,
                hidden_collectives, allowed);
  ORRERY_RECORD(
      m, models::Runtime,
      "What it takes to notice a loss, to start processes, to connect ranks and to search "
      "a plan (by planner).",
      monitor, detect_loss, detect_process, start_node, start_process, connect_rank, search);
}

void bind_judgment(py::module_& m) {
  ORRERY_RECORD(m, ir::MemoryUse, "Peak memory of the worst device of one GPU type.", gpu, device,
                pipeline, stage, need, have);
  ORRERY_RECORD(m, ir::HostMemoryUse, "Model states in host memory of a node.", node, need, have);
  ORRERY_RECORD(m, ir::MemoryVerdict, "Does a plan fit?", by_gpu_type, host);
  ORRERY_RECORD(m, models::Infeasible, "An expected no: the constraint, and a witness in words.",
                constraint, witness);
  ORRERY_RECORD(m, models::Breakdown, "Where the time of an iteration goes, mean over devices.",
                compute, tensor_parallel, zero, pipeline, data_parallel, optimizer, bubble);
  ORRERY_RECORD(m, models::Evaluation, "What a judge says of a plan.", iteration_time, memory,
                breakdown, tokens_per_second, mfu, hfu, dollars_per_million_tokens,
                joules_per_token, pipeline_times, synchronization);
  ORRERY_RECORD(m, models::PlanDefect, "One thing that is wrong in a plan, and where.", path, what,
                hint);
  ORRERY_RECORD(m, models::LowerOptions, "How a plan becomes a program.", collapsed, seed);
  ORRERY_RECORD(m, models::BlockQuery, "Which pass over which block a price is asked for.",
                gpu_type, block, pass, tensor_parallel, sequence_degree, samples, recompute,
                expert_parallel, experts, expert_samples, sequence_parallel);
  ORRERY_RECORD(m, models::KernelProjection, "A weight matrix of attention.", rows, columns, split);
  ORRERY_RECORD(m, models::KernelLayer, "What the kernels of a layer compute.", hidden, heads,
                projections, query_width, value_width, kv_heads, ffn, gated, experts, top_k,
                expert_ffn, load, window, unfused, norms, scan);
  ORRERY_RECORD(m, models::KernelDegrees, "How a block is divided, and in which numbers.", sequence,
                samples, tensor_parallel, context_parallel, expert_parallel, experts,
                expert_samples, products, causal, sequence_parallel, accumulates, fused, launch);
  ORRERY_RECORD(m, models::KernelTimes, "Seconds of the passes of a block.", forward, backward,
                backward_weight, attention, experts, experts_backward, experts_backward_weight,
                kernels_forward, kernels_backward);
  ORRERY_RECORD(m, models::SegmentMemory, "Memory per device of a segment's group, in bytes.",
                parameters, gradients, optimizer_states, activations_per_micro_batch, recomputed,
                recomputed_kept, logits, communication);
  ORRERY_RECORD(m, models::FlowEdge, "One edge of a collective as a flow.", source, destination,
                bytes, extra_latency);
  ORRERY_RECORD(m, planners::RunnerUp, "A plan that lost.", what, estimate, evaluated);
  ORRERY_RECORD(m, planners::ConstraintCost, "What a constraint kept the search from.", constraint,
                rejected, best_without, witness);
  ORRERY_RECORD(m, planners::SearchReport, "What a search did.", plans_examined, rejected_by_memory,
                work, work_unit, complete, estimate, judged, own_choice, notes, chosen, runners_up,
                constraints);
  ORRERY_RECORD(m, planners::PlannerResult, "A Plan or Infeasible, and what the search did.",
                outcome, report);
  ORRERY_RECORD(m, planners::OptionInfo, "A setting of a planner or policy.", name, default_value,
                doc);
  ORRERY_RECORD(m, sim::Straggler, "A device whose passes take `slowdown` times as long.", device,
                slowdown);
  ORRERY_RECORD(m, sim::SlowLink, "A link with 1 / slowdown of its bandwidth.", link, slowdown);
  ORRERY_RECORD(m, sim::IterationOptions, "How an iteration is simulated.", jitter, step_jitter,
                link_jitter, seed, stragglers, slow_links, inner, ring, fold, record_spans,
                record_memory, record_links);
  ORRERY_RECORD(m, sim::SimulatedWork, "Counted work of a simulation.", timers, flows, barriers);
  ORRERY_RECORD(m, sim::IterationResult, "A simulated iteration.", log, iteration_time, iterations,
                settled, ranks, breakdown, pipeline_times, peak_memory, work, simulated_pipelines);
}

void bind_trace(py::module_& m) {
  ORRERY_RECORD(m, ir::EventScope, "What an event hits.", kind, devices, node, link);
  ORRERY_RECORD(m, ir::ClusterEvent, "An event of a cluster's life.", time, kind, scope, cause,
                notice, detection, factor, price, sequence);
  ORRERY_RECORD(m, traces::TraceNode, "A node of a trace.", name, gpu_type, gpus);
  ORRERY_RECORD(m, traces::Trace, "What happens to a cluster over time.", source, seed, horizon,
                header, nodes, events);
}

void bind_recovery(py::module_& m) {
  ORRERY_RECORD(m, models::StateTransfer, "A move of model state.", from, to, source, destination,
                bytes);
  ORRERY_RECORD(m, models::StateReplica, "One replica of the model state.", iteration, location,
                layout, stored_on, lost_shards);
  ORRERY_RECORD(m, models::SlowDevice, "A device at `factor` of its speed.", device, factor);
  ORRERY_RECORD(m, models::LeavingDevice, "A device that was given notice.", device, at);
  ORRERY_RECORD(m, models::PendingSwitch, "A switch that training has not reached yet.", plan,
                asked, at);
  ORRERY_RECORD(m, models::JobState, "What a policy may know when it decides.", now, iteration,
                plan, training, live, leaving, slow, replicas, iteration_time, pending, announced,
                first);
  ORRERY_RECORD(m, models::RecoveryPhase, "A part of a stall.", kind, duration, source);
  ORRERY_RECORD(m, models::RecoveryDecision, "What a policy answers.", action, plan,
                resume_iteration, run_on, phases, transfers, reason);
  ORRERY_RECORD(m, models::CheckpointLevel, "What a policy writes while training runs.", location,
                every, stall, persist, stored_on, source, background);
  ORRERY_RECORD(m, sim::IterationConditions, "What slows an iteration down.", slow, degraded_links,
                background);
  ORRERY_RECORD(m, sim::DeviceHours, "GPU-hours by what they went into.", in_plan, spare, absent);
  ORRERY_RECORD(m, sim::ReplayOptions, "How a trace is replayed.", horizon, measured_planning,
                spot_prices, record_spans, background_transfers);
  ORRERY_RECORD(m, sim::ReplaySpan, "A stretch of wall time in one bucket.", bucket, start, end,
                first_iteration, iterations, what);
  ORRERY_RECORD(m, sim::InterruptionRecord, "A stop of the training.", at, cause, reason,
                rolled_back, stall);
  ORRERY_RECORD(m, sim::ReplayPoint, "A point of the curves over time.", at, iterations, live,
                in_plan, samples_per_second);
  ORRERY_RECORD(m, sim::ReplayResult, "A replay: where the wall time went, and what came of it.",
                horizon, wall, background, device_hours, iterations, samples, tokens, reference,
                ettr, goodput, dollars, priced, events, interruptions, decisions, log, points,
                spans, first_plan_problem);
}

}  // namespace

void bind_values(py::module_& m) {
  bind_plan(m);
  bind_program(m);
  bind_run_log(m);
  bind_profile(m);
  bind_cluster(m);
  bind_job(m);
  bind_judgment(m);
  bind_trace(m);
  bind_recovery(m);
}

}  // namespace orrery::python
