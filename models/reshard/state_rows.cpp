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
  for (std::size_t i = first; cuts[i] < piece.slice.end; ++i) visit(i);
}

void sort_unique(std::vector<int>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

double bytes_of(StatePart part, const ReshardBytes& bytes) {
  switch (part) {
    case StatePart::weights:
      return bytes.weight;
    case StatePart::optimizer:
      return bytes.optimizer();
    case StatePart::all:
      break;
  }
  return bytes.weight + bytes.optimizer();
}

StateTables::StateTables(const Workload& workload, std::vector<SliceSource> sources,
                         const BlockReplicas& to, std::vector<bool> needs)
    : workload_(workload), sources_(std::move(sources)), to_(to), needs_(std::move(needs)) {}

std::vector<StatePart> StateTables::parts(BlockId block, const ReshardBytes& bytes) const {
  const auto alike = [&](const BlockReplicas& layout) {
    const ir::Zero& zero = layout.zero(block);
    return is_sharded(zero, StatePart::weights) == is_sharded(zero, StatePart::optimizer);
  };
  const bool together =
      alike(to_) && std::all_of(sources_.begin(), sources_.end(),
                                [&](const SliceSource& source) { return alike(*source.layout); });
  if (together && bytes.weight > 0) return {StatePart::all};
  std::vector<StatePart> out;
  if (bytes.weight > 0) out.push_back(StatePart::weights);
  if (bytes.optimizer() > 0) out.push_back(StatePart::optimizer);
  return out;
}

const TensorRows& StateTables::rows(BlockId block, std::size_t parameter, StatePart part) {
  const bool like_current =
      current_.valid() && to_.alike(block, current_) &&
      std::all_of(sources_.begin(), sources_.end(),
                  [&](const SliceSource& source) { return source.layout->alike(block, current_); });
  if (!like_current) known_.clear();
  current_ = block;
  const Parameter& of = workload_.block(block).parameters[parameter];
  const Key key = {of.split_length, of.expert, to_.is_tied(block, parameter), part};
  const auto [at, fresh] = known_.try_emplace(key);
  if (fresh) at->second = make_rows(block, parameter, part);
  return at->second;
}

TensorRows StateTables::make_rows(BlockId block, std::size_t parameter, StatePart part) {
  const auto holdings = [&](const BlockReplicas& layout) {
    return layout.holdings(block, parameter, is_sharded(layout.zero(block), part));
  };
  Layout need = holdings(to_);
  std::erase_if(need.pieces, [&](const Piece& piece) { return !needs_[piece.owner]; });
  TensorRows rows;
  rows.length = need.length;
  if (need.pieces.empty()) return rows;
  std::map<const BlockReplicas*, Layout> have;
  for (const SliceSource& source : sources_) {
    if (!have.contains(source.layout)) have.emplace(source.layout, holdings(*source.layout));
  }
  std::vector<std::int64_t> cuts = {0, need.length};
  const auto add_cuts = [&](const Layout& layout) {
    for (const Piece& piece : layout.pieces) {
      cuts.insert(cuts.end(), {piece.slice.begin, piece.slice.end});
    }
  };
  add_cuts(need);
  for (const auto& [unused, layout] : have) add_cuts(layout);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<SliceHolders> holders(cuts.size() - 1);
  for (const Piece& piece : need.pieces) {
    for_each_slice(piece, cuts, [&](std::size_t i) { holders[i].required.push_back(piece.owner); });
  }
  for (SliceHolders& at : holders) at.readers.resize(sources_.size());
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    for (const Piece& piece : have.at(sources_[s].layout).pieces) {
      const int reader = sources_[s].reader[piece.owner];
      if (reader < 0) continue;
      for_each_slice(piece, cuts, [&](std::size_t i) {
        if (!holders[i].required.empty()) holders[i].readers[s].push_back(reader);
      });
    }
  }
  for (std::size_t i = 0; i < holders.size(); ++i) {
    if (holders[i].required.empty()) continue;
    sort_unique(holders[i].required);
    for (std::vector<int>& readers : holders[i].readers) sort_unique(readers);
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
