#include "models/reshard/state_rows.h"

#include <algorithm>
#include <utility>

namespace orrery::models {
namespace {

bool is_sharded(const ir::Zero& zero, StatePart part) {
  return part == StatePart::optimizer ? zero.shards_optimizer() : zero.shards_parameters();
}

/// Calls visit(index) for each slice between two cuts that the piece covers.
template <class Visit>
void for_each_slice(const Piece& piece, const std::vector<std::int64_t>& cuts, Visit visit) {
  const auto first = std::lower_bound(cuts.begin(), cuts.end(), piece.slice.begin) - cuts.begin();
  for (auto i = static_cast<std::size_t>(first); cuts[i] < piece.slice.end; ++i) visit(i);
}

void sort_unique(std::vector<int>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

StateTables::StateTables(const Workload& workload, const BlockReplicas& from,
                         const BlockReplicas& to, std::vector<bool> is_lost)
    : workload_(workload), from_(from), to_(to), is_lost_(std::move(is_lost)) {}

std::vector<StatePart> StateTables::parts(BlockId block, const ReshardBytes& bytes) const {
  const auto alike = [&](const ir::Zero& zero) {
    return is_sharded(zero, StatePart::weights) == is_sharded(zero, StatePart::optimizer);
  };
  if (alike(from_.zero(block)) && alike(to_.zero(block)) && bytes.weight > 0) {
    return {StatePart::all};
  }
  std::vector<StatePart> out;
  if (bytes.weight > 0) out.push_back(StatePart::weights);
  if (bytes.optimizer() > 0) out.push_back(StatePart::optimizer);
  return out;
}

const TensorRows& StateTables::rows(BlockId block, std::size_t parameter, StatePart part) {
  if (!current_.valid() || !from_.alike(block, current_) || !to_.alike(block, current_)) {
    known_.clear();
  }
  current_ = block;
  const Parameter& of = workload_.block(block).parameters[parameter];
  const bool before = is_sharded(from_.zero(block), part);
  const bool after = is_sharded(to_.zero(block), part);
  const Key key = {of.split_length, of.expert, from_.is_tied(block, parameter), before, after};
  const auto [at, fresh] = known_.try_emplace(key);
  if (fresh) {
    at->second =
        make_rows(from_.holdings(block, parameter, before), to_.holdings(block, parameter, after));
  }
  return at->second;
}

TensorRows StateTables::make_rows(const Layout& before, const Layout& after) {
  std::vector<std::int64_t> cuts = {0, after.length};
  for (const Layout* layout : {&before, &after}) {
    for (const Piece& piece : layout->pieces) {
      cuts.push_back(piece.slice.begin);
      cuts.push_back(piece.slice.end);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<SliceHolders> holders(cuts.size() - 1);
  for (const Piece& piece : before.pieces) {
    const bool lost = is_lost_[static_cast<std::size_t>(piece.owner)];
    for_each_slice(piece, cuts, [&](std::size_t i) {
      (lost ? holders[i].lost : holders[i].owners).push_back(piece.owner);
    });
  }
  for (const Piece& piece : after.pieces) {
    for_each_slice(piece, cuts, [&](std::size_t i) { holders[i].required.push_back(piece.owner); });
  }
  TensorRows rows;
  rows.length = after.length;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    if (holders[i].required.empty()) continue;
    sort_unique(holders[i].owners);
    sort_unique(holders[i].lost);
    sort_unique(holders[i].required);
    rows.slices.push_back({{cuts[i], cuts[i + 1]}, number(std::move(holders[i]))});
  }
  return rows;
}

std::size_t StateTables::number(SliceHolders holders) {
  const auto [at, fresh] = numbers_.try_emplace(holders, holders_.size());
  if (fresh) holders_.push_back(std::move(holders));
  return at->second;
}

}  // namespace orrery::models
