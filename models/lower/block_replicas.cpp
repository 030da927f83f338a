#include "models/lower/block_replicas.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/sharding/flatten.h"

namespace orrery::models {
namespace {

/// Devices that work on the same tokens, in tensor-parallel order: one set for each part of the
/// sequence.
std::vector<std::vector<int>> token_sets(const ir::Group& group) {
  std::vector<std::vector<int>> sets;
  for (std::size_t i = 0; i < group.devices.size(); ++i) {
    if (i % as_size(group.tensor_parallel) == 0) sets.emplace_back();
    sets.back().push_back(group.devices[i].value);
  }
  return sets;
}

bool same_parameters(const Block& a, const Block& b) {
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const Parameter& x, const Parameter& y) {
                      return x.elements == y.elements && x.split_length == y.split_length &&
                             x.expert == y.expert;
                    });
}

/// Numbers steps so that those of equal number may run in any order.
std::vector<ParameterStep> in_order(std::vector<GroupStep> steps) {
  std::vector<ParameterStep> out;
  std::set<int> written;  // By one-to-many steps of the current number.
  for (GroupStep& step : steps) {
    const bool first = out.empty();
    const bool fresh = first || step.kind != out.back().step.kind || written.count(step.source) > 0;
    const int order = (first ? 0 : out.back().order) + (fresh ? 1 : 0);
    if (fresh) written.clear();
    if (step.source >= 0) {
      written.insert(step.group.begin(), step.group.end());
      written.erase(step.source);
    }
    out.push_back({std::move(step), order, {}});
  }
  return out;
}

/// Gains that all groups hold as equally many copies of equal gradients synchronize position by
/// position: an annotation for each. Else all at once.
std::vector<Annotation> by_position(const Annotation& gains) {
  const DistributedStates& states = gains.subgroups.front().states;
  const bool uniform =
      shards_along(states, kPartial) == 1 &&
      std::all_of(gains.subgroups.begin(), gains.subgroups.end(),
                  [&](const Subgroup& subgroup) { return subgroup.states == states; });
  if (!uniform) return {gains};
  std::vector<Annotation> out(gains.subgroups.front().devices.size(), {{}, kPartial, {}});
  for (const Subgroup& subgroup : gains.subgroups) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].subgroups.push_back({{subgroup.devices[i]}, {}});
    }
  }
  return out;
}

void shift(std::vector<Slice>& slices, std::int64_t by) {
  for (Slice& slice : slices) {
    slice.begin += by;
    slice.end += by;
  }
}

/// The longest shard over an even one, of steps that move shards around a ring.
double longest_over_even(const GroupStep& step, const std::map<int, int>& weights) {
  const bool ring = step.kind == StepKind::reduce_scatter || step.kind == StepKind::all_gather;
  if (weights.empty() || !ring) return 1;
  double sum = 0, largest = 0;
  for (const int owner : step.group) {
    const auto found = weights.find(owner);
    const double own = found == weights.end() ? 1 : found->second;
    sum += own;
    largest = std::max(largest, own);
  }
  return largest * static_cast<double>(step.group.size()) / sum;
}

}  // namespace

/// A part of a parameter, or some of its copies, synchronized apart from the rest.
struct BlockReplicas::Sheet {
  std::int64_t begin = 0;  ///< Its first element in the parameter.
  Gradients gradients;
  std::int64_t end() const { return begin + volume(gradients.shape); }
};

BlockReplicas::BlockReplicas(const Workload& workload, const Placement& placement)
    : workload_(workload),
      placement_(placement),
      replicas_(workload.size()),
      shadows_(workload.size()),
      counts_(workload.size(), 0),
      weights_(workload.size(), 0) {
  for (std::size_t p = 0; p < placement.elements.size(); ++p) {
    for (std::size_t e = 0; e < placement.elements[p].size(); ++e) {
      const ir::Segment& segment = *placement.elements[p][e].segment;
      for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
        for (std::size_t g = 0; g < segment.groups.size(); ++g) {
          if (placement.elements[p][e].ranks[g].empty()) continue;  // Idle.
          replicas_[b].push_back({static_cast<int>(p), static_cast<int>(e), static_cast<int>(g)});
          const ir::Group& group = segment.groups[g];
          counts_[b] += group.sequence_degree;
          weights_[b] += group.sequence_degree * group.state_weight;
        }
      }
    }
    const auto shadows = placement.shadows[p].size();
    for (std::size_t s = 0; s < shadows; ++s) {
      const ir::Segment& segment = *placement.shadows[p][s].segment;
      const int element = placement.count(static_cast<int>(p)) - static_cast<int>(shadows - s);
      for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
        for (std::size_t g = 0; g < segment.groups.size(); ++g) {
          shadows_[b].push_back({static_cast<int>(p), element, static_cast<int>(g)});
        }
      }
    }
  }
}

const ir::Segment& BlockReplicas::segment_of(const BlockReplica& at) const {
  return *placement_.element(at.pipeline, at.element).segment;
}

const ir::Group& BlockReplicas::group_of(const BlockReplica& at) const {
  return segment_of(at).groups[at.group];
}

const ir::Zero& BlockReplicas::zero(BlockId block) const {
  ORRERY_CHECK(!of(block).empty(), "nobody holds block {}", block.value);
  return segment_of(of(block).front()).zero;
}

bool BlockReplicas::alike(BlockId a, BlockId b) const {
  return of(a) == of(b) && shadows(a) == shadows(b) &&
         same_parameters(workload_.block(a), workload_.block(b));
}

bool BlockReplicas::same_holders(BlockId a, BlockId b) const {
  return std::equal(of(a).begin(), of(a).end(), of(b).begin(), of(b).end(),
                    [&](const BlockReplica& x, const BlockReplica& y) {
                      const ir::Segment& one = segment_of(x);
                      const ir::Segment& other = segment_of(y);
                      return x.group == y.group && group_of(x) == group_of(y) &&
                             one.zero == other.zero && one.expert_parallel == other.expert_parallel;
                    });
}

bool BlockReplicas::tied() const { return workload_.shape.tied_embeddings && workload_.size() > 1; }

bool BlockReplicas::is_tied(BlockId block, std::size_t parameter) const {
  if (!tied() || (block.value != 0 && block.value + 1 != workload_.size())) return false;
  const auto& all = workload_.block(block).parameters;
  const auto largest = std::max_element(all.begin(), all.end(),
                                        [](auto& a, auto& b) { return a.elements < b.elements; });
  return as_size(largest - all.begin()) == parameter;
}

/// Each token set is a copy, split along the dimension that tensor parallelism splits. Fewer slices
/// than devices (key-value heads) lie on several devices each, which do different parts of the work
/// that follows: their gradients are summands.
Annotation BlockReplicas::split_copies(std::int64_t length,
                                       const std::vector<BlockReplica>& at) const {
  Annotation out{{}, kPartial, {}};
  for (const BlockReplica& one : at) {
    for (std::vector<int>& devices : token_sets(group_of(one))) {
      const auto width = static_cast<int>(devices.size());
      DistributedStates states = {{0, width}};
      if (width > length && width % length == 0) {
        const auto slices = static_cast<int>(length);
        states = {{0, slices}, {kPartial, width / slices}};
      }
      out.subgroups.push_back({std::move(devices), std::move(states)});
    }
  }
  return out;
}

/// Norms and biases: whole on every member. With Megatron's sequence parallelism each member saw
/// other tokens, else they hold equal gradients.
Annotation BlockReplicas::whole_copies(const std::vector<BlockReplica>& at) const {
  Annotation out{{}, kPartial, {}};
  for (const BlockReplica& one : at) {
    const ir::Group& group = group_of(one);
    const bool own_tokens = group.sequence == ir::SequenceParallelism::megatron;
    for (std::vector<int>& devices : token_sets(group)) {
      const auto width = static_cast<int>(devices.size());
      out.subgroups.push_back({std::move(devices), {{own_tokens ? kPartial : kDuplicate, width}}});
    }
  }
  return out;
}

/// Dimensions: experts, and the dimension that tensor parallelism splits. `expert_parallel`
/// consecutive groups of a stage hold one copy of the experts together, for each part of the
/// sequence; a bias that is not split lies whole on every member.
Annotation BlockReplicas::expert_copies(bool is_split, const std::vector<BlockReplica>& at) const {
  Annotation out{{}, kPartial, {}};
  std::size_t first = 0;  // Copy that the first part of the sequence of the current groups is.
  for (const BlockReplica& one : at) {
    const int degree = segment_of(one).expert_parallel;
    if (one.group % degree == 0) first = out.subgroups.size();
    const auto sets = token_sets(group_of(one));
    out.subgroups.resize(std::max(out.subgroups.size(), first + sets.size()));
    for (std::size_t s = 0; s < sets.size(); ++s) {
      Subgroup& copy = out.subgroups[first + s];
      copy.devices.insert(copy.devices.end(), sets[s].begin(), sets[s].end());
      copy.states = {{0, degree}, {is_split ? 1 : kDuplicate, static_cast<int>(sets[s].size())}};
    }
  }
  return out;
}

bool BlockReplicas::has_uneven_experts(BlockId block) const {
  return std::any_of(of(block).begin(), of(block).end(),
                     [&](const BlockReplica& at) { return group_of(at).experts > 0; });
}

/// The experts that a group holds.
Slice BlockReplicas::experts_of(const BlockReplica& at) const {
  const ir::Segment& segment = segment_of(at);
  const int degree = segment.expert_parallel;
  const int first = at.group / degree * degree;
  Slice slice;
  for (int g = first; g <= at.group; ++g) {
    const int held = segment.groups[as_size(g)].experts;
    slice.begin = slice.end;
    slice.end += held > 0 ? held : std::max(1, workload_.shape.experts) / degree;
  }
  return slice;
}

/// Between two cuts each copy of the experts is with one of its groups.
std::vector<BlockReplicas::Sheet> BlockReplicas::expert_sheets(
    const Parameter& parameter, const std::vector<BlockReplica>& at) const {
  std::set<std::int64_t> cuts;
  for (const BlockReplica& one : at) {
    const Slice held = experts_of(one);
    cuts.insert({held.begin, held.end});
  }
  const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
  std::vector<Sheet> out;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    std::vector<BlockReplica> holders;
    std::copy_if(at.begin(), at.end(), std::back_inserter(holders), [&](const BlockReplica& one) {
      const Slice held = experts_of(one);
      return held.begin <= *cut && *cut < held.end;
    });
    Annotation copies{{}, kPartial, {}};
    for (const BlockReplica& one : holders) {
      for (std::vector<int>& devices : token_sets(group_of(one))) {
        const auto members = static_cast<int>(devices.size());
        copies.subgroups.push_back(
            {std::move(devices), {{parameter.split_length > 0 ? 1 : kDuplicate, members}}});
      }
    }
    const std::int64_t experts = *std::next(cut) - *cut;
    out.push_back({*cut * width, {std::move(copies), {experts, width}, RowSlices::apart}});
  }
  return out;
}

/// The gradients on the groups' devices, in the elements of holdings().
Gradients BlockReplicas::gradients(const Parameter& parameter,
                                   const std::vector<BlockReplica>& at) const {
  const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
  const bool is_split = parameter.split_length > 0;
  if (parameter.expert) {
    const std::int64_t experts = std::max(1, workload_.shape.experts);
    return {expert_copies(is_split, at), {experts, width}, RowSlices::apart};
  }
  return {is_split ? split_copies(width, at) : whole_copies(at), {width}};
}

/// A device that holds the matrix for both ends has added up its gradients itself: between two
/// cuts each device that holds the slice is one copy.
std::vector<BlockReplicas::Sheet> BlockReplicas::tied_sheets(std::int64_t length) const {
  std::vector<Piece> pieces;
  std::set<std::int64_t> cuts = {0, length};
  for (const std::vector<BlockReplica>* end : {&replicas_.front(), &replicas_.back()}) {
    for (const Piece& piece : flatten(split_copies(length, *end), {length}).pieces) {
      cuts.insert({piece.slice.begin, piece.slice.end});
      pieces.push_back(piece);
    }
  }
  std::vector<Sheet> out;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    Annotation copies{{}, kPartial, {}};
    std::set<int> known;
    for (const Piece& piece : pieces) {
      const bool covers = piece.slice.begin <= *cut && *cut < piece.slice.end;
      if (covers && known.insert(piece.owner).second) {
        copies.subgroups.push_back({{piece.owner}, {}});
      }
    }
    const std::int64_t size = *std::next(cut) - *cut;
    out.push_back({*cut, {std::move(copies), {size}}});
  }
  return out;
}

std::vector<BlockReplicas::Sheet> BlockReplicas::sheets(BlockId block,
                                                        std::size_t parameter_index) const {
  const Parameter& parameter = workload_.block(block).parameters[parameter_index];
  std::vector<Sheet> out;
  if (is_tied(block, parameter_index)) {
    out = tied_sheets(std::max<std::int64_t>(1, parameter.split_length));
  } else if (parameter.expert && has_uneven_experts(block)) {
    out = expert_sheets(parameter, of(block));
  } else {
    Gradients all = gradients(parameter, of(block));
    if (parameter.expert || parameter.split_length > 0) {
      out.push_back({0, std::move(all)});
    } else {
      for (Annotation& gains : by_position(all.annotation)) {
        out.push_back({0, {std::move(gains), all.shape}});
      }
    }
  }
  const std::map<int, int> weights = weights_of(block, parameter_index);
  for (Sheet& sheet : out) sheet.gradients.weights = weights;
  return out;
}

/// Gradients::weights: of the holders of both ends for the tied matrix.
std::map<int, int> BlockReplicas::weights_of(BlockId block, std::size_t parameter) const {
  std::map<int, int> weights;
  const auto add = [&](BlockId of_block) {
    if (weight(of_block) == count(of_block)) return;
    for (const BlockReplica& at : of(of_block)) {
      const ir::Group& group = group_of(at);
      for (const DeviceId device : group.devices) {
        weights.try_emplace(device.value, group.state_weight);
      }
    }
  };
  add(block);
  if (is_tied(block, parameter)) {
    add({0});
    add({workload_.size() - 1});
  }
  return weights;
}

/// What each device of the groups holds, in the elements of holdings().
std::vector<Piece> BlockReplicas::pieces(BlockId block, std::size_t parameter_index,
                                         const std::vector<BlockReplica>& at) const {
  if (at.empty()) return {};
  const Parameter& parameter = workload_.block(block).parameters[parameter_index];
  return parameter_layout(gradients(parameter, at)).pieces;
}

std::vector<ParameterStep> BlockReplicas::shadow_steps(BlockId block, std::size_t parameter,
                                                       int pipeline) const {
  const auto own = [&](const std::vector<BlockReplica>& all) {
    std::vector<BlockReplica> out;
    std::copy_if(all.begin(), all.end(), std::back_inserter(out),
                 [&](const BlockReplica& at) { return at.pipeline == pipeline; });
    return out;
  };
  const Parameter& tensor = workload_.block(block).parameters[parameter];
  const std::int64_t length =
      std::max<std::int64_t>(1, tensor.split_length) *
      (tensor.expert ? std::max<std::int64_t>(1, workload_.shape.experts) : 1);
  const Layout to = {length, pieces(block, parameter, own(shadows(block)))};
  Layout from = {length, pieces(block, parameter, own(of(block)))};
  const std::vector<Piece> other = other_end(block, parameter, to);
  from.pieces.insert(from.pieces.end(), other.begin(), other.end());
  auto steps = resolve(from, to, {{}, false});
  const auto* problem = std::get_if<Unresolvable>(&steps);
  ORRERY_CHECK(problem == nullptr, "gradients of block {} do not reach their copy: {}", block.value,
               problem->reason);
  std::vector<ParameterStep> out;
  for (GroupStep& step : std::get<std::vector<GroupStep>>(steps)) {
    const double share = static_cast<double>(elements(step.slices)) / static_cast<double>(length);
    out.push_back({std::move(step), 0, share});
  }
  return out;
}

/// A device that keeps a copy of one end of the tied matrix may hold the other end itself.
std::vector<Piece> BlockReplicas::other_end(BlockId block, std::size_t parameter,
                                            const Layout& keepers) const {
  std::vector<Piece> out;
  if (!is_tied(block, parameter)) return out;
  const std::vector<BlockReplica>& holders =
      block.value == 0 ? replicas_.back() : replicas_.front();
  const Annotation matrix = parameter_annotation(split_copies(keepers.length, holders));
  for (const Piece& piece : flatten(matrix, {keepers.length}).pieces) {
    const auto keeps = [&](const Piece& other) { return other.owner == piece.owner; };
    if (std::any_of(keepers.pieces.begin(), keepers.pieces.end(), keeps)) out.push_back(piece);
  }
  return out;
}

/// What the general way finds for parameters that are neither experts, nor tied, nor divided by
/// ZeRO: an even part for each member of a token set, or all of it. No pieces where there is more
/// to it.
Layout BlockReplicas::plain_holdings(BlockId block, const Parameter& parameter) const {
  const bool is_split = parameter.split_length > 0;
  Layout out;
  out.length = std::max<std::int64_t>(1, parameter.split_length);
  if (parameter.expert) return out;
  for (const BlockReplica& at : of(block)) {
    const ir::Group& group = group_of(at);
    const std::int64_t width = is_split ? group.tensor_parallel : 1;
    if (width > out.length) {
      out.pieces.clear();
      return out;
    }
    std::int64_t i = 0;
    for (const DeviceId device : group.devices) {
      out.pieces.push_back({device.value, even_part({0, out.length}, width, i++ % width)});
    }
  }
  return out;
}

Layout BlockReplicas::holdings(BlockId block, std::size_t parameter_index, bool sharded) const {
  if (!sharded && !is_tied(block, parameter_index)) {
    Layout plain = plain_holdings(block, workload_.block(block).parameters[parameter_index]);
    if (!plain.pieces.empty()) {
      add_shadow_pieces(block, parameter_index, plain);
      return plain;
    }
  }
  const std::vector<Sheet> all = sheets(block, parameter_index);
  Layout out;
  out.length = all.back().end();
  for (const Sheet& sheet : all) {
    const Layout layout = sharded ? zero_layout(sheet.gradients, zero(block).shard_group)
                                  : parameter_layout(sheet.gradients);
    for (const Piece& piece : layout.pieces) {
      out.pieces.push_back(
          {piece.owner, {piece.slice.begin + sheet.begin, piece.slice.end + sheet.begin}});
    }
  }
  add_shadow_pieces(block, parameter_index, out);
  return out;
}

/// A device that holds one end of the tied matrix already has what its copy of the other end needs.
void BlockReplicas::add_shadow_pieces(BlockId block, std::size_t parameter, Layout& layout) const {
  std::vector<BlockReplica> keepers = shadows(block);
  if (is_tied(block, parameter)) {
    keepers = shadows_.front();
    keepers.insert(keepers.end(), shadows_.back().begin(), shadows_.back().end());
  }
  if (keepers.empty()) return;
  std::set<int> holders;
  for (const Piece& piece : layout.pieces) holders.insert(piece.owner);
  for (const Piece& piece : pieces(block, parameter, keepers)) {
    if (holders.count(piece.owner) == 0) layout.pieces.push_back(piece);
  }
}

/// What the general way finds where all copies are cut alike: one all-reduce for each position in
/// the copies. Nothing where there is more to it.
std::vector<ParameterStep> BlockReplicas::steps_of_equal_groups(BlockId block,
                                                                const Parameter& parameter) const {
  const std::vector<BlockReplica>& all = of(block);
  const bool is_split = parameter.split_length > 0;
  const int width = group_of(all.front()).tensor_parallel;
  const auto length = is_split ? parameter.split_length : std::int64_t{1};
  const auto plain = [&](const BlockReplica& at) {
    const ir::Group& group = group_of(at);
    const bool own_tokens = group.sequence == ir::SequenceParallelism::megatron && width > 1;
    return group.tensor_parallel == width && (is_split || !own_tokens);
  };
  if (parameter.expert || counts_[block] < 2 || (is_split && width > length)) return {};
  if (!std::all_of(all.begin(), all.end(), plain)) return {};
  std::vector<ParameterStep> out(width);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    const Slice slice = is_split ? even_part({0, length}, width, position) : Slice{0, 1};
    out[i] = {{.kind = StepKind::all_reduce, .slices = {slice}, .group = {}, .parts = {}},
              1,
              static_cast<double>(slice.size()) / static_cast<double>(length)};
    out[i].step.group.reserve(counts_[block]);
  }
  int last = -1;
  bool ascending = true;
  for (const BlockReplica& at : all) {
    const std::vector<DeviceId>& devices = group_of(at).devices;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      ascending = ascending && last < devices[i].value;
      last = devices[i].value;
      out[i % out.size()].step.group.push_back(last);
    }
  }
  if (ascending) return out;
  // Which devices are in two copies is for the general way to say.
  std::set<int> seen;
  for (const ParameterStep& step : out) {
    for (const int device : step.step.group) {
      if (!seen.insert(device).second) return {};
    }
  }
  return out;
}

std::vector<ParameterStep> BlockReplicas::steps(BlockId block, std::size_t parameter_index,
                                                SyncPhase phase, ShortSlices short_slices) const {
  const ir::Zero& sharding = zero(block);
  if (phase == SyncPhase::gather && sharding.stage == 0) return {};
  if (phase == SyncPhase::reduce && sharding.stage == 0 && !is_tied(block, parameter_index)) {
    const Parameter& parameter = workload_.block(block).parameters[parameter_index];
    std::vector<ParameterStep> known = steps_of_equal_groups(block, parameter);
    if (!known.empty()) return known;
  }
  const std::vector<Sheet> all = sheets(block, parameter_index);
  // Sheets side by side each have the whole length; consecutive ones share it.
  const auto length = static_cast<double>(all.back().end());
  std::vector<ParameterStep> out;
  for (const Sheet& sheet : all) {
    auto steps =
        in_order(phase == SyncPhase::gather
                     ? gather_parameters(sheet.gradients, sharding.shard_group, short_slices)
                 : sharding.stage > 0 ? scatter_gradients(sheet.gradients, sharding.shard_group)
                                      : synchronize_gradients(sheet.gradients));
    for (ParameterStep& step : steps) {
      step.share = static_cast<double>(elements(step.step.slices)) / length *
                   longest_over_even(step.step, sheet.gradients.weights);
      shift(step.step.slices, sheet.begin);
      for (std::vector<Slice>& part : step.step.parts) shift(part, sheet.begin);
      out.push_back(std::move(step));
    }
  }
  return out;
}

}  // namespace orrery::models
