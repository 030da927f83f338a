#include "models/sharding/transformer_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/base/ids.h"

namespace orrery::models::transformer {
namespace {

using ir::SequenceParallelism;

bool splits_sequences(SequenceParallelism kind) {
  return kind == SequenceParallelism::ulysses || kind == SequenceParallelism::ring;
}

/// `units` over `parts` devices: as many on each, or one on several.
void append_spread(DistributedStates& states, Axis axis, int units, int parts) {
  const int shards = units == 0 ? parts : std::min(units, parts);
  append(states, axis, shards);
  append(states, kDuplicate, parts / shards);
}

/// Whether heads can be spread so.
bool spreads(int units, int parts) { return units % parts == 0 || parts % units == 0; }

std::optional<GraphProblem> check_heads(const ir::ModelShape& model, const ir::Group& group) {
  const bool ulysses = group.sequence == SequenceParallelism::ulysses;
  const int parts = group.tensor_parallel * (ulysses ? group.sequence_degree : 1);
  if (model.heads % parts != 0) {
    return refused(fmt::format("{} heads on {} devices", model.heads, parts));
  }
  for (const int devices : {group.tensor_parallel, parts}) {
    if (spreads(model.kv_heads, devices)) continue;
    return refused(fmt::format("{} key-value heads on {} devices", model.kv_heads, devices));
  }
  return std::nullopt;
}

std::optional<GraphProblem> check_group(const ir::ModelShape& model, const ir::Group& group) {
  if (group.tensor_parallel < 1 || group.sequence_degree < 1 ||
      static_cast<std::int64_t>(group.devices.size()) !=
          std::int64_t{group.tensor_parallel} * group.sequence_degree) {
    return refused(fmt::format("{} devices for tensor_parallel {} x sequence_degree {}",
                               group.devices.size(), group.tensor_parallel, group.sequence_degree));
  }
  if (group.sequence_degree > 1 && !splits_sequences(group.sequence)) {
    return refused(
        fmt::format("sequence_degree {} without Ulysses or ring", group.sequence_degree));
  }
  return check_heads(model, group);
}

std::optional<GraphProblem> check_experts(const ir::ModelShape& model, const ir::Segment& segment) {
  const int degree = segment.expert_parallel;
  if (degree < 1) return refused(fmt::format("expert_parallel {}", degree));
  if (degree == 1) return std::nullopt;
  if (model.experts == 0) return refused("expert parallelism of a model without experts");
  const std::size_t size = degree;
  if (segment.groups.size() % size != 0) {
    return refused(fmt::format("expert_parallel {} for {} groups", degree, segment.groups.size()));
  }
  for (std::size_t g = 0; g < segment.groups.size(); ++g) {
    ir::Group like = segment.groups[g / size * size];
    like.devices = segment.groups[g].devices;
    if (like == segment.groups[g]) continue;
    return refused(
        "groups that share experts differ in samples, degrees or numbers of experts: their devices "
        "would hold unequal parts inside one subgroup, where an annotation has equal ones only");
  }
  return std::nullopt;
}

BlockGroup joined(const ir::Pipeline& pipeline, const ir::Segment& segment, std::size_t first) {
  const ir::Group& like = segment.groups[first];
  BlockGroup group;
  group.tensor_parts = like.tensor_parallel;
  group.sequence_parts = like.sequence_degree;
  group.expert_parts = segment.expert_parallel;
  group.sequence = like.sequence;
  group.samples = std::int64_t{like.samples} * pipeline.micro_batches * segment.expert_parallel;
  group.zero = segment.zero;
  for (int t = 0; t < group.tensor_parts; ++t) {
    for (int s = 0; s < group.sequence_parts; ++s) {
      for (int k = 0; k < group.expert_parts; ++k) {
        const auto& devices = segment.groups[first + k].devices;
        group.devices.push_back(devices[as_size(s * group.tensor_parts + t)].value);
      }
    }
  }
  return group;
}

std::optional<GraphProblem> add_segment(const ir::ModelShape& model, const ir::Pipeline& pipeline,
                                        const ir::Segment& segment,
                                        std::vector<BlockGroups>& blocks) {
  for (const ir::Group& group : segment.groups) {
    if (auto problem = check_group(model, group)) return problem;
  }
  if (auto problem = check_experts(model, segment)) return problem;
  for (const ir::Group& group : segment.groups) {
    if (group.state_weight != 1) return refused("uneven ZeRO shards have no annotations");
  }
  const std::size_t size = segment.expert_parallel;
  for (std::size_t first = 0; first < segment.groups.size(); first += size) {
    const BlockGroup group = joined(pipeline, segment, first);
    if (static_cast<int>(blocks.size()) <= segment.last_block.value) {
      blocks.resize(segment.last_block.value + 1);
    }
    for (int block = std::max(0, segment.first_block.value); block <= segment.last_block.value;
         ++block) {
      BlockGroups& holders = blocks[block];
      if (!holders.empty() && holders.front().zero != group.zero) {
        return refused(fmt::format("the holders of block {} differ in ZeRO", block));
      }
      holders.push_back(group);
    }
  }
  return std::nullopt;
}

/// The axes of a tensor on the three levels of the grid.
struct Levels {
  Axis tensor = kDuplicate;
  Axis sequence = kDuplicate;
  Axis expert = kDuplicate;
  int units = 0;  ///< Of the tensor axis.
};

DistributedStates states(const BlockGroup& group, const Levels& levels) {
  DistributedStates result;
  append_spread(result, levels.tensor, levels.units, group.tensor_parts);
  append(result, levels.sequence, group.sequence_parts);
  append(result, levels.expert, group.expert_parts);
  return result;
}

/// `states_of(group)` on each group, `samples` being the dimension that divides among them.
template <class StatesOf>
Annotation over(const BlockGroups& groups, Axis samples, const StatesOf& states_of) {
  Annotation annotation;
  for (const BlockGroup& group : groups) {
    annotation.subgroups.push_back({group.devices, states_of(group)});
    if (groups.size() > 1 && samples >= 0) annotation.shares.push_back(group.samples);
  }
  if (groups.size() > 1) annotation.hetero_axis = samples;
  return annotation;
}

/// One copy on some devices of the group.
struct Copy {
  const Parameter& parameter;
  const BlockGroup& group;

  /// Tensor parts `first`, `first` + `step`, ... of one part of the sequence.
  Subgroup of(int first, int step, int part, int expert) const {
    Subgroup subgroup;
    for (int t = first; t < group.tensor_parts; t += step) {
      subgroup.devices.push_back(group.device(t, part, expert));
    }
    append(subgroup.states, axis(), static_cast<int>(subgroup.devices.size()));
    return subgroup;
  }
  /// With all parts of the experts.
  Subgroup of_experts(int part) const {
    Subgroup subgroup;
    for (int t = 0; t < group.tensor_parts; ++t) {
      for (int k = 0; k < group.expert_parts; ++k) {
        subgroup.devices.push_back(group.device(t, part, k));
      }
    }
    append(subgroup.states, axis(), group.tensor_parts);
    append(subgroup.states, 0, group.expert_parts);
    return subgroup;
  }
  /// How many devices share a head, each with other queries.
  int rounds() const {
    return parameter.units == 0 ? 1 : std::max(1, group.tensor_parts / parameter.units);
  }

 private:
  Axis axis() const {
    if (parameter.axis != kDuplicate) return parameter.axis;
    return group.splits_tokens() ? kPartial : kDuplicate;
  }
};

}  // namespace

int BlockGroup::device(int tensor, int part, int expert) const {
  return devices[as_size((tensor * sequence_parts + part) * expert_parts + expert)];
}

GraphProblem refused(const std::string& reason) { return {"plan", 0, "plan: " + reason}; }

std::variant<std::vector<BlockGroups>, GraphProblem> groups_by_block(const ir::Plan& plan,
                                                                     const ir::ModelShape& model) {
  std::vector<BlockGroups> blocks;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (!pipeline.reroutes.empty()) {
      return refused(
          "reroutes are a state of a recovery, single micro-batches on other devices; "
          "an annotation says where all of them lie");
    }
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (auto problem = add_segment(model, pipeline, segment, blocks)) return *problem;
      }
    }
  }
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    std::int64_t samples = 0;
    for (const BlockGroup& group : blocks[block]) samples += group.samples;
    if (samples != ir::global_batch(plan)) {
      return refused(
          fmt::format("block {} sees {} of {} samples", block, samples, ir::global_batch(plan)));
    }
  }
  return blocks;
}

void append(DistributedStates& states, Axis axis, int shards) {
  if (shards == 1) return;
  if (!states.empty() && states.back().axis == axis) {
    states.back().shards *= shards;
  } else {
    states.push_back({axis, shards});
  }
}

Annotation activation(const BlockGroups& groups, bool at_rest) {
  return over(groups, 0, [&](const BlockGroup& group) {
    return states(group, {at_rest && group.splits_tokens() ? 1 : kDuplicate, 1, 0, 0});
  });
}

Annotation heads(const BlockGroups& groups, int count, bool keys) {
  return over(groups, 0, [&](const BlockGroup& group) {
    DistributedStates result;
    if (group.sequence == SequenceParallelism::ulysses) {
      append_spread(result, 2, count, group.tensor_parts * group.sequence_parts);
      append(result, 0, group.expert_parts);
      return result;
    }
    return states(group, {2, keys ? kDuplicate : 1, 0, count});
  });
}

Annotation merged_heads(const BlockGroups& groups, int count) {
  return over(groups, 0, [&](const BlockGroup& group) { return states(group, {2, 1, 0, count}); });
}

Annotation rows(const BlockGroups& groups, bool with_experts, bool whole) {
  return over(groups, 1, [&](const BlockGroup& group) {
    const Axis tensor = group.splits_tokens() && !whole ? 2 : kDuplicate;
    return states(group, {tensor, 2, with_experts ? 0 : 1, 0});
  });
}

Annotation lies(const Parameter& parameter) {
  return over(parameter.groups, kDuplicate, [&](const BlockGroup& group) {
    return states(group,
                  {parameter.axis, kDuplicate, parameter.expert ? 0 : kDuplicate, parameter.units});
  });
}

std::vector<Subgroup> copies(const Parameter& parameter) {
  std::vector<Subgroup> all;
  for (const BlockGroup& group : parameter.groups) {
    const Copy copy{parameter, group};
    for (int part = 0; parameter.expert && part < group.sequence_parts; ++part) {
      all.push_back(copy.of_experts(part));
    }
    for (int expert = 0; !parameter.expert && expert < group.expert_parts; ++expert) {
      for (int part = 0; part < group.sequence_parts; ++part) {
        for (int round = 0; round < copy.rounds(); ++round) {
          all.push_back(copy.of(round, copy.rounds(), part, expert));
        }
      }
    }
  }
  return all;
}

}  // namespace orrery::models::transformer
