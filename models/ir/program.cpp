#include "models/ir/program.h"

namespace orrery::ir {

std::span<const Op> Program::stream_ops(RankId rank, Stream stream) const {
  const std::size_t slot = rank.index() * kStreams + static_cast<std::size_t>(stream);
  return std::span(ops).subspan(stream_begin[slot], stream_begin[slot + 1] - stream_begin[slot]);
}

std::span<const OpId> Program::dependencies_of(OpId op) const {
  const std::size_t begin = dependency_begin[op.index()];
  return std::span(dependencies).subspan(begin, dependency_begin[op.index() + 1] - begin);
}

std::span<const OpId> Program::members_of(Rendezvous rendezvous) const {
  return std::span(members).subspan(rendezvous.first_member, rendezvous.member_count);
}

const char* name_of(OpKind kind) {
  constexpr const char* kNames[] = {"forward",    "backward",  "backward_input", "backward_weight",
                                    "send",       "recv",      "collective",     "optimizer_step",
                                    "load_state", "save_state"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(Stream stream) {
  constexpr const char* kNames[] = {"compute", "p2p", "collective"};
  return kNames[static_cast<int>(stream)];
}

const char* name_of(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "all_to_all"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(Purpose purpose) {
  constexpr const char* kNames[] = {"tensor_parallel",
                                    "sequence_parallel",
                                    "expert_parallel",
                                    "pipeline",
                                    "data_parallel",
                                    "zero",
                                    "state"};
  return kNames[static_cast<int>(purpose)];
}

const char* name_of(BufferKind kind) {
  constexpr const char* kNames[] = {"parameters", "gradients", "optimizer_states", "activations",
                                    "recomputed", "logits",    "communication",    "context"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace orrery::ir
