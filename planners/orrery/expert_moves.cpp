#include "planners/orrery/expert_moves.h"

#include <algorithm>

#include "planners/kit/integers.h"
#include "planners/orrery/draw.h"
#include "planners/orrery/moves.h"

namespace orrery::planners {
namespace {

/// Share of the moves that change which group of a mix holds how many.
constexpr double kShares = 0.5;

void name_no_experts(DraftStage& stage) {
  for (DraftGroup& group : stage.groups) group.experts = 0;
}

}  // namespace

/// What other moves did to groups may leave fewer that can share experts.
void ExpertMoves::keep(Draft& draft) const {
  if (!limits_.experts) return;
  for (DraftPipeline& pipeline : draft.pipelines) {
    for (DraftStage& stage : pipeline.stages) {
      if (draft.zero.shards_parameters()) stage.expert_parallel = 1;
      const auto possible = [&] {
        return can_share_experts(stage, stage.expert_parallel, input_.workload) &&
               (limits_.unlike_experts || !has_unlike_shares(stage));
      };
      if (possible()) continue;
      name_no_experts(stage);
      while (!possible()) --stage.expert_parallel;
    }
  }
}

/// Pipelines side by side become one whose stages have as many groups, which share the experts
/// where they can. The others go.
bool ExpertMoves::join(Draft& draft, const Pipelines& pipelines, int count) const {
  if (pipelines.size() < as_size(count)) return false;
  std::vector<char> gone(draft.pipelines.size(), 0);
  for (std::size_t i = 0; i + as_size(count) <= pipelines.size(); i += as_size(count)) {
    DraftPipeline& into = draft.pipelines[pipelines[i]];
    for (int other = 1; other < count; ++other) {
      const std::size_t from = pipelines[i + as_size(other)];
      const DraftPipeline& added = draft.pipelines[from];
      if (added.stages.size() != into.stages.size()) return false;
      for (std::size_t s = 0; s < into.stages.size(); ++s) {
        const std::vector<DraftGroup>& groups = added.stages[s].groups;
        into.stages[s].groups.insert(into.stages[s].groups.end(), groups.begin(), groups.end());
      }
      into.micro_batch_size += added.micro_batch_size;
      gone[from] = 1;
    }
    for (DraftStage& stage : into.stages) {
      name_no_experts(stage);
      const int most = stage.expert_parallel * count;
      stage.expert_parallel = can_share_experts(stage, most, input_.workload) ? most : count;
      if (mixes_types(stage)) balance_shares(stage);
    }
  }
  std::size_t kept = 0;
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    if (gone[p] == 0) std::swap(draft.pipelines[kept++], draft.pipelines[p]);
  }
  draft.pipelines.resize(kept);
  return true;
}

/// A tensor-parallel group becomes so many that share the experts.
bool ExpertMoves::split(DraftPipeline& pipeline, std::size_t stage, int count) const {
  DraftStage& own = pipeline.stages[stage];
  if (own.groups.size() != 1 || own.groups[0].degree() % count != 0) return false;
  const int degree = own.groups[0].degree() / count;
  if (!costs_.has_degree(degree)) return false;
  if (pipeline.micro_batch_size % count != 0) {
    const int samples = pipeline.samples();
    pipeline.micro_batch_size *= count;
    pipeline.micro_batches = std::max(1, samples / pipeline.micro_batch_size);
    for (DraftStage& other : pipeline.stages) {
      for (DraftGroup& group : other.groups) group.samples *= count;
    }
  }
  const DraftGroup whole = own.groups[0];
  own.groups.clear();
  for (int g = 0; g < count; ++g) {
    const auto first = whole.devices.begin() + static_cast<long>(g) * degree;
    own.groups.push_back({{first, first + degree}, pipeline.micro_batch_size / count});
  }
  own.expert_parallel = count;
  return true;
}

/// Single devices of several GPU types that share experts.
bool ExpertMoves::mixes_types(const DraftStage& stage) const {
  if (!limits_.unlike_experts || stage.expert_parallel == 1) return false;
  bool mixed = false;
  for (const DraftGroup& group : stage.groups) {
    if (group.degree() != 1) return false;
    mixed = mixed || input_.cluster.device(group.devices[0]).gpu_type !=
                         input_.cluster.device(stage.groups[0].devices[0]).gpu_type;
  }
  return mixed;
}

/// One in the middle of the model.
int ExpertMoves::layer_with_experts() const {
  int layer = costs_.layers() / 2;
  const int first = input_.workload.first_layer().value;
  while (layer > 0 && !input_.workload.block({first + layer}).expert_all_to_all) --layer;
  return layer;
}

/// Samples by how fast each group is beside experts, experts by how fast it is in them.
void ExpertMoves::balance_shares(DraftStage& stage) const {
  const auto size = as_size(stage.expert_parallel);
  const int experts = input_.workload.shape.experts;
  if (experts < stage.expert_parallel) return;
  for (std::size_t set = 0; set + size <= stage.groups.size(); set += size) {
    std::vector<double> around, inside;
    int samples = 0;
    for (std::size_t g = set; g < set + size; ++g) {
      const DraftGroup& group = stage.groups[g];
      StageShape shape;
      shape.first = layer_with_experts();
      shape.samples = group.samples;
      shape.expert_parallel = stage.expert_parallel;
      const StageCosts::Passes passes =
          costs_.stage_costs().compute(input_.cluster.device(group.devices[0]).gpu_type, shape);
      inside.push_back(passes.experts().value / group.samples);
      around.push_back(passes.both().value / group.samples - inside.back());
      samples += group.samples;
    }
    // One for each, and the others where they end first.
    const auto dealt = [](int total, const std::vector<double>& seconds) {
      std::vector<int> shares(seconds.size(), 1);
      for (int left = total - static_cast<int>(shares.size()); left > 0; --left) {
        std::size_t first = 0;
        for (std::size_t i = 1; i < shares.size(); ++i) {
          if ((shares[i] + 1) * seconds[i] < (shares[first] + 1) * seconds[first]) first = i;
        }
        ++shares[first];
      }
      return shares;
    };
    const std::vector<int> taken = dealt(samples, around), held = dealt(experts, inside);
    const bool even =
        std::all_of(held.begin(), held.end(), [&](int own) { return own == held[0]; });
    for (std::size_t i = 0; i < size; ++i) {
      stage.groups[set + i].samples = taken[i];
      stage.groups[set + i].experts = even ? 0 : held[i];
    }
  }
  // Groups of a stage all name their experts, or none does.
  const auto names = [](const DraftGroup& group) { return group.experts > 0; };
  if (std::none_of(stage.groups.begin(), stage.groups.end(), names)) return;
  for (DraftGroup& group : stage.groups) {
    if (!names(group)) group.experts = experts / stage.expert_parallel;
  }
}

/// Balanced shares, one expert or sample from a group to another, or even shares again.
bool ExpertMoves::change_shares(Draft& draft, const Pipelines& pipelines, Rng& rng) const {
  const int how = static_cast<int>(rng.integer(0, 3));
  const std::uint64_t pair = static_cast<std::uint64_t>(rng.integer(0, 1 << 20));
  bool any = false;
  for (const std::size_t p : pipelines) {
    for (DraftStage& stage : draft.pipelines[p].stages) {
      if (!mixes_types(stage)) continue;
      if (how == 0) balance_shares(stage);
      if (how == 1) {
        name_no_experts(stage);
        for (DraftGroup& group : stage.groups) group.samples = 0;
      }
      any = any || how < 2;
      if (how < 2) continue;
      const auto size = as_size(stage.expert_parallel);
      Rng own(pair);  // The same in stages that are alike.
      const std::size_t set = any_of_count(stage.groups.size() / size, own) * size;
      DraftGroup& from = stage.groups[set + any_of_count(size, own)];
      DraftGroup& to = stage.groups[set + any_of_count(size, own)];
      if (&from == &to) continue;
      if (how == 2 && from.experts == 0 &&
          input_.workload.shape.experts % static_cast<int>(size) == 0) {
        for (DraftGroup& group : stage.groups) {
          group.experts = input_.workload.shape.experts / static_cast<int>(size);
        }
      }
      int& given = how == 2 ? from.experts : from.samples;
      if (given < 2) continue;
      --given;
      ++(how == 2 ? to.experts : to.samples);
      any = true;
    }
    if (how == 1 && !share_samples(draft.pipelines[p])) return false;
  }
  return any;
}

/// Another degree for the groups that are there; pipelines side by side as groups of one; or a
/// tensor-parallel group in parts, in one stage or in all of its degree; or other shares.
bool ExpertMoves::change(Draft& draft, const Pipelines& pipelines, Rng& rng) const {
  const bool mixed = std::any_of(pipelines.begin(), pipelines.end(), [&](std::size_t p) {
    const std::vector<DraftStage>& stages = draft.pipelines[p].stages;
    return std::any_of(stages.begin(), stages.end(),
                       [&](const DraftStage& one) { return mixes_types(one); });
  });
  if (mixed && rng.bernoulli(kShares)) return change_shares(draft, pipelines, rng);
  const int how = static_cast<int>(rng.integer(0, 2));
  const std::size_t stage = any_of_count(draft.pipelines[pipelines.front()].stages.size(), rng);
  const bool every = rng.bernoulli(0.6) || limits_.uniform;
  const int count = 1 << rng.integer(1, 3);
  if (how == 1) return join(draft, pipelines, count);
  const DraftStage model = draft.pipelines[pipelines.front()].stages[stage];
  const std::vector<std::int64_t> degrees =
      divisors(static_cast<std::int64_t>(model.groups.size()));
  const int degree = static_cast<int>(any_of(degrees, rng));
  bool any = false;
  for (const std::size_t p : pipelines) {
    DraftPipeline& pipeline = draft.pipelines[p];
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      if (!every && s != stage) continue;
      DraftStage& own = pipeline.stages[s];
      if (how == 2) {
        any = split(pipeline, s, count) || any;
      } else if (own.expert_parallel != degree) {
        DraftStage other = own;
        name_no_experts(other);
        if (!can_share_experts(other, degree, input_.workload)) continue;
        other.expert_parallel = degree;
        own = other;
        any = true;
      }
    }
  }
  return any;
}

}  // namespace orrery::planners
