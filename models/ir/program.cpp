#include "models/ir/program.h"

#include "models/base/ids.h"

namespace orrery::ir {

std::span<const Op> Program::stream_ops(RankId rank, Stream stream) const {
  const std::size_t slot = rank.index() * kStreams + index_of(stream);
  return std::span(ops).subspan(stream_begin[slot], stream_begin[slot + 1] - stream_begin[slot]);
}

std::span<const OpId> Program::dependencies_of(OpId op) const {
  const std::size_t begin = dependency_begin[op.index()];
  return std::span(dependencies).subspan(begin, dependency_begin[op.index() + 1] - begin);
}

std::span<const OpId> Program::members_of(Rendezvous rendezvous) const {
  return std::span(members).subspan(rendezvous.first_member, rendezvous.member_count);
}

}  // namespace orrery::ir
