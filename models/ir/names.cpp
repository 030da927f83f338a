#include "models/ir/names.h"

#include "models/ir/op_traits.h"

namespace orrery::ir {

EnumNames<Dtype> enum_names(Dtype) {
  using enum Dtype;
  return {{fp32, "fp32"}, {tf32, "tf32"}, {fp16, "fp16"}, {bf16, "bf16"},
          {fp8, "fp8"},   {fp64, "fp64"}, {fp4, "fp4"},   {mxfp8, "mxfp8"}};
}

EnumNames<BlockKind> enum_names(BlockKind) {
  using enum BlockKind;
  return {{embedding, "embedding"},
          {transformer, "transformer"},
          {moe, "moe"},
          {head, "head"},
          {convolution, "convolution"}};
}

EnumNames<Normalization> enum_names(Normalization) {
  using enum Normalization;
  return {{layer_norm, "layer_norm"}, {rms_norm, "rms_norm"}};
}

EnumNames<Activation> enum_names(Activation) {
  using enum Activation;
  return {{gelu, "gelu"}, {relu, "relu"}, {swiglu, "swiglu"}};
}

EnumNames<Optimizer> enum_names(Optimizer) {
  using enum Optimizer;
  return {{adam, "adam"}, {sgd, "sgd"}};
}

EnumNames<ScheduleKind> enum_names(ScheduleKind) {
  using enum ScheduleKind;
  return {{gpipe, "gpipe"},
          {one_f_one_b, "1f1b"},
          {interleaved_one_f_one_b, "interleaved_1f1b"},
          {zero_bubble, "zero_bubble"},
          {zb_v, "zb_v"},
          {dual_pipe, "dual_pipe"}};
}

EnumNames<ActivationTransfer> enum_names(ActivationTransfer) {
  using enum ActivationTransfer;
  return {{leader_broadcast, "leader_broadcast"}, {sliced, "sliced"}};
}

EnumNames<Redundancy> enum_names(Redundancy) {
  using enum Redundancy;
  return {{none, "none"}, {next_stage, "next_stage"}};
}

EnumNames<OptimizerStart> enum_names(OptimizerStart) {
  using enum OptimizerStart;
  return {{together, "together"}, {staggered, "staggered"}};
}

EnumNames<SequenceParallelism> enum_names(SequenceParallelism) {
  using enum SequenceParallelism;
  return {{none, "none"}, {megatron, "megatron"}, {ulysses, "ulysses"}, {ring, "ring"}};
}

EnumNames<Recompute> enum_names(Recompute) {
  using enum Recompute;
  return {{none, "none"}, {selective, "selective"}, {full, "full"}, {experts, "experts"}};
}

EnumNames<Pass> enum_names(Pass) {
  EnumNames<Pass> names;
  for (const OpTraits& op : kOpTraits) {
    if (!op.priced_as) continue;
    names.emplace_back(*op.priced_as, *op.priced_as == Pass::optimizer ? "optimizer" : op.name);
  }
  return names;
}

EnumNames<CollectiveWay::Algorithm> enum_names(CollectiveWay::Algorithm) {
  using enum CollectiveWay::Algorithm;
  return {{ring, "ring"}, {tree, "tree"}, {nvls, "nvls"}, {nvls_tree, "nvls_tree"}};
}
EnumNames<CollectiveWay::Protocol> enum_names(CollectiveWay::Protocol) {
  using enum CollectiveWay::Protocol;
  return {{ll, "ll"}, {ll128, "ll128"}, {simple, "simple"}};
}

EnumNames<EventKind> enum_names(EventKind) {
  using enum EventKind;
  return {{fail, "fail"}, {repair, "repair"}, {notice, "notice"},   {leave, "leave"},
          {join, "join"}, {slow, "slow"},     {restore, "restore"}, {degrade, "degrade"}};
}

EnumNames<EventScope::Kind> enum_names(EventScope::Kind) {
  using enum EventScope::Kind;
  return {{devices, "devices"}, {node, "node"}, {link, "link"}, {job, "job"}};
}

EnumNames<OpKind> enum_names(OpKind) {
  EnumNames<OpKind> names;
  for (std::size_t i = 0; i < kOpTraits.size(); ++i) {
    names.emplace_back(static_cast<OpKind>(i), kOpTraits[i].name);
  }
  return names;
}

EnumNames<Stream> enum_names(Stream) {
  using enum Stream;
  return {{compute, "compute"}, {p2p, "p2p"}, {collective, "collective"}};
}

EnumNames<Location> enum_names(Location) {
  using enum Location;
  return {{none, "none"},
          {peer, "peer"},
          {host_memory, "host_memory"},
          {nvme, "nvme"},
          {cloud, "cloud"}};
}

EnumNames<CollectiveKind> enum_names(CollectiveKind) {
  using enum CollectiveKind;
  return {{all_reduce, "all_reduce"},
          {reduce_scatter, "reduce_scatter"},
          {all_gather, "all_gather"},
          {broadcast, "broadcast"},
          {all_to_all, "all_to_all"}};
}

EnumNames<Purpose> enum_names(Purpose) {
  using enum Purpose;
  return {{tensor_parallel, "tensor_parallel"},
          {sequence_parallel, "sequence_parallel"},
          {expert_parallel, "expert_parallel"},
          {pipeline, "pipeline"},
          {data_parallel, "data_parallel"},
          {zero, "zero"},
          {state, "state"}};
}

EnumNames<TensorKind> enum_names(TensorKind) {
  using enum TensorKind;
  return {{activation, "activation"},
          {activation_gradient, "activation_gradient"},
          {parameter, "parameter"},
          {gradient, "gradient"},
          {master_parameter, "master_parameter"},
          {first_moment, "first_moment"},
          {second_moment, "second_moment"}};
}

EnumNames<BufferKind> enum_names(BufferKind) {
  using enum BufferKind;
  return {{parameters, "parameters"},
          {gradients, "gradients"},
          {optimizer_states, "optimizer_states"},
          {activations, "activations"},
          {recomputed, "recomputed"},
          {logits, "logits"},
          {communication, "communication"},
          {context, "context"}};
}

EnumNames<BufferEffect::Action> enum_names(BufferEffect::Action) {
  using enum BufferEffect::Action;
  return {{allocate, "allocate"}, {free, "free"}, {transient, "transient"}};
}

}  // namespace orrery::ir
