#include "planners/orrery/moves.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "models/schedule/schedule.h"
#include "planners/kit/plan_parts.h"
#include "planners/orrery/draw.h"

namespace orrery::planners {
namespace {

/// Share of the moves of ZeRO that change how uneven its shards are, where they are.
constexpr double kWeighs = 0.5;

/// A size of micro-batches whose groups take no more than the job allows.
bool allowed_samples(const DraftPipeline& pipeline, const models::Job& job) {
  for (const DraftStage& stage : pipeline.stages) {
    for (const DraftGroup& group : stage.groups) {
      if (group.samples < 1 || group.samples > job.allowed.max_micro_batch_size) return false;
    }
  }
  return true;
}

std::int64_t samples_of(const Draft& draft) {
  std::int64_t samples = 0;
  for (const DraftPipeline& pipeline : draft.pipelines) samples += pipeline.samples();
  return samples;
}

}  // namespace

void switch_overlap(Draft& draft, bool gathers) {
  draft.overlap = !draft.overlap;
  draft.gathers_next = draft.overlap && gathers;
}

ir::ActivationTransfer other_transfer(ir::ActivationTransfer transfer) {
  using ir::ActivationTransfer;
  return transfer == ActivationTransfer::sliced ? ActivationTransfer::leader_broadcast
                                                : ActivationTransfer::sliced;
}

ir::EnumNames<MoveKind> enum_names(MoveKind) {
  return {{MoveKind::layers, "layers"},     {MoveKind::batches, "batches"},
          {MoveKind::groups, "groups"},     {MoveKind::pipelines, "pipelines"},
          {MoveKind::order, "order"},       {MoveKind::placement, "placement"},
          {MoveKind::idle, "idle"},         {MoveKind::zero, "zero"},
          {MoveKind::schedule, "schedule"}, {MoveKind::transfer, "transfer"},
          {MoveKind::experts, "experts"}};
}

bool DraftMoves::one_vendor(const std::vector<DeviceId>& devices) const {
  return one_vendor_per_group(devices, static_cast<int>(devices.size()), input_.cluster);
}

int DraftMoves::type_of(const DraftStage& stage) const {
  return input_.cluster.device(stage.groups[0].devices[0]).gpu_type;
}

/// Often the one that ends last.
std::size_t DraftMoves::pick_pipeline(const Draft& draft, const DraftCosts::View& view,
                                      Rng& rng) const {
  if (view.pipelines.size() == draft.pipelines.size() && rng.bernoulli(0.4)) {
    return as_size(std::max_element(view.pipelines.begin(), view.pipelines.end()) -
                   view.pipelines.begin());
  }
  return any_of_count(draft.pipelines.size(), rng);
}

/// The pipeline, those like it, or all of as many stages.
DraftMoves::Pipelines DraftMoves::scope(const Draft& draft, std::size_t pipeline, Rng& rng) const {
  const double kind = rng.uniform();
  if (!limits_.uniform && kind < 0.45) return {pipeline};
  const DraftPipeline& own = draft.pipelines[pipeline];
  const bool all = limits_.uniform || kind > 0.8;
  const auto alike = [&](const DraftPipeline& other) {
    if (other.stages.size() != own.stages.size()) return false;
    if (all) return true;
    for (std::size_t s = 0; s < own.stages.size(); ++s) {
      const DraftStage &a = own.stages[s], &b = other.stages[s];
      if (a.groups.size() != b.groups.size() || type_of(a) != type_of(b) ||
          a.groups[0].degree() != b.groups[0].degree()) {
        return false;
      }
    }
    return true;
  };
  Pipelines found;
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    if (alike(draft.pipelines[p])) found.push_back(p);
  }
  return found;
}

bool DraftMoves::settle(Draft& draft) const {
  experts_.keep(draft);
  if (!may_weigh_states(draft)) draft.state_weights.clear();
  for (const DraftPipeline& pipeline : draft.pipelines) {
    if (!allowed_samples(pipeline, input_.job)) return false;
  }
  // Batches need layers and layers need batches, for what is in flight: twice is enough.
  return balance_.all_layers(draft) && balance_.batches(draft) && balance_.all_layers(draft);
}

bool DraftMoves::settle(Draft& draft, const Draft& before) const {
  experts_.keep(draft);
  if (!may_weigh_states(draft)) draft.state_weights.clear();
  const bool alike = draft.zero == before.zero && draft.lighter_layers == before.lighter_layers &&
                     draft.state_weights == before.state_weights &&
                     draft.schedule == before.schedule &&
                     draft.virtual_stages == before.virtual_stages;
  if (!alike) return settle(draft);
  for (const DraftPipeline& pipeline : draft.pipelines) {
    if (!allowed_samples(pipeline, input_.job)) return false;
  }
  const auto shape = [&](DraftPipeline pipeline) {
    pipeline.micro_batches = 0;
    return balance_.kind(pipeline);
  };
  std::map<std::vector<int>, const DraftPipeline*> known;
  for (const DraftPipeline& pipeline : before.pipelines)
    known.try_emplace(shape(pipeline), &pipeline);
  bool same = draft.pipelines.size() == before.pipelines.size();
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    const auto found = known.find(shape(draft.pipelines[p]));
    if (found == known.end()) {
      same = false;
      if (!balance_.layers(draft, p)) return false;
      continue;
    }
    for (std::size_t s = 0; s < draft.pipelines[p].stages.size(); ++s) {
      draft.pipelines[p].stages[s].chunks = found->second->stages[s].chunks;
    }
  }
  if (same && samples_of(draft) == input_.job.global_batch) return true;
  return balance_.batches(draft);
}

bool DraftMoves::apply(MoveKind kind, Draft& draft, const DraftCosts::View& view, Rng& rng) const {
  const Draft before = draft;
  const std::size_t pipeline = pick_pipeline(draft, view, rng);
  switch (kind) {
    case MoveKind::layers:
      return move_layers(draft, view, rng);
    case MoveKind::batches:
      if (draft.pipelines.size() > 1 && rng.bernoulli(0.5)) return move_batches(draft, view, rng);
      return resize_batches(draft, scope(draft, pipeline, rng), rng) && settle(draft, before);
    case MoveKind::groups:
      return change_groups(draft, scope(draft, pipeline, rng), rng) && settle(draft, before);
    case MoveKind::pipelines:
      return change_pipelines(draft, view, rng) && settle(draft, before);
    case MoveKind::order:
      if (draft.pipelines.size() > 1 && rng.bernoulli(0.4)) {
        return move_stage(draft, pipeline, rng) && settle(draft, before);
      }
      return change_order(draft, scope(draft, pipeline, rng), rng) && settle(draft, before);
    case MoveKind::placement:
      return change_placement(draft, view, rng) && settle(draft, before);
    case MoveKind::idle:
      return change_idle(draft, view, rng) && settle(draft, before);
    case MoveKind::zero:
      return change_zero(draft, rng) && settle(draft, before);
    case MoveKind::schedule:
      return change_schedule(draft, rng) && settle(draft, before);
    case MoveKind::transfer:
      return change_transfer(draft, rng);
    case MoveKind::experts:
      return limits_.experts && !draft.zero.shards_parameters() &&
             experts_.change(draft, scope(draft, pipeline, rng), rng) && settle(draft, before);
  }
  return false;
}

bool DraftMoves::move_layers(Draft& draft, const DraftCosts::View& view, Rng& rng) const {
  const std::size_t p = pick_pipeline(draft, view, rng);
  const DraftPipeline& own = draft.pipelines[p];
  const std::size_t count = own.stages.size();
  if (count < 2) return false;
  std::size_t from = any_of_count(count, rng);
  if (p < view.longest.size() && as_size(view.longest[p]) < count && rng.bernoulli(0.5)) {
    from = as_size(view.longest[p]);
  }
  std::size_t to = any_of_count(count, rng);
  if (rng.bernoulli(0.6))
    to = from == 0 || (from + 1 < count && rng.bernoulli(0.5)) ? from + 1 : from - 1;
  if (from == to) return false;
  const std::size_t chunk = any_of_count(as_size(draft.virtual_stages), rng);
  const int moved = rng.bernoulli(0.75) ? 1 : static_cast<int>(rng.integer(1, 4));
  for (const std::size_t q : scope(draft, p, rng)) {
    DraftPipeline& pipeline = draft.pipelines[q];
    DraftChunk& source = pipeline.stages[from].chunks[chunk];
    DraftChunk& target = pipeline.stages[to].chunks[chunk];
    if (source.layers <= moved) return false;
    source.layers -= moved;
    target.layers += moved;
    source.full = std::min(source.full, source.layers);
    source.selective = std::min(source.selective, source.layers - source.full);
    if (draft.virtual_stages == 1) {
      if (!balance_.recompute(draft, q, from) || !balance_.recompute(draft, q, to)) return false;
    } else {
      const auto& allowed = input_.job.allowed.recompute;
      if (std::find(allowed.begin(), allowed.end(), ir::Recompute::none) == allowed.end()) {
        (weakest_recompute(input_.job) == ir::Recompute::full ? target.full : target.selective) +=
            moved;
      }
    }
  }
  return true;
}

bool DraftMoves::move_batches(Draft& draft, const DraftCosts::View& view, Rng& rng) const {
  const std::size_t from = pick_pipeline(draft, view, rng);
  std::size_t to = any_of_count(draft.pipelines.size(), rng);
  if (view.pipelines.size() == draft.pipelines.size() && rng.bernoulli(0.5)) {
    to = as_size(std::min_element(view.pipelines.begin(), view.pipelines.end()) -
                 view.pipelines.begin());
  }
  if (from == to) return false;
  DraftPipeline &source = draft.pipelines[from], &target = draft.pipelines[to];
  const int unit = std::lcm(source.micro_batch_size, target.micro_batch_size);
  if (source.micro_batches <= unit / source.micro_batch_size) return false;
  source.micro_batches -= unit / source.micro_batch_size;
  target.micro_batches += unit / target.micro_batch_size;
  return true;
}

bool DraftMoves::resize_batches(Draft& draft, const Pipelines& pipelines, Rng& rng) const {
  // Twice, half, or any size that divides what the pipeline takes.
  const int how = static_cast<int>(rng.integer(0, 2));
  const DraftPipeline& model = draft.pipelines[pipelines.front()];
  int size = how == 0 ? 2 * model.micro_batch_size : model.micro_batch_size / 2;
  if (how == 1 && model.micro_batch_size % 2 != 0) return false;
  if (how == 2) {
    const std::vector<std::int64_t> sizes = divisors(model.samples());
    size = static_cast<int>(any_of(sizes, rng));
  }
  for (const std::size_t p : pipelines) {
    DraftPipeline& own = draft.pipelines[p];
    const int samples = own.samples();
    if (how == 2 && samples % size != 0) return false;
    own.micro_batch_size = size;
    own.micro_batches = std::max(1, samples / size);
    for (DraftStage& stage : own.stages) {
      for (DraftGroup& group : stage.groups) group.samples = 0;
    }
    if (!share_samples(own)) return false;
  }
  return true;
}

/// A group becomes two of half the degree: two stages (`deep`), or two groups side by side.
bool DraftMoves::split_group(DraftPipeline& pipeline, std::size_t stage, bool deep) const {
  DraftStage& own = pipeline.stages[stage];
  if (own.groups.size() != 1 || own.groups[0].degree() % 2 != 0) return false;
  const DraftGroup whole = own.groups[0];
  const std::size_t half = whole.devices.size() / 2;
  if (!costs_.has_degree(static_cast<int>(half))) return false;
  DraftGroup first = whole, second = whole;
  first.devices.resize(half);
  second.devices.erase(second.devices.begin(), second.devices.begin() + static_cast<long>(half));
  if (deep) {
    DraftStage next = own;
    own.groups = {first};
    next.groups = {second};
    pipeline.stages.insert(pipeline.stages.begin() + static_cast<long>(stage) + 1, next);
    return true;
  }
  if (!limits_.mixed_stages) return false;
  own.groups = {first, second};
  own.groups[0].samples = own.groups[1].samples = 0;
  if (pipeline.micro_batch_size % 2 != 0) {
    const int samples = pipeline.samples();
    pipeline.micro_batch_size *= 2;
    pipeline.micro_batches = std::max(1, samples / pipeline.micro_batch_size);
    for (DraftStage& other : pipeline.stages) {
      for (DraftGroup& group : other.groups) group.samples *= 2;
    }
  }
  return share_samples(pipeline);
}

/// Two groups of one stage, or those of two neighbors, become one of twice the degree.
bool DraftMoves::merge_groups(DraftPipeline& pipeline, std::size_t stage) const {
  DraftStage& own = pipeline.stages[stage];
  const auto merged = [&](const DraftGroup& a, const DraftGroup& b) -> std::optional<DraftGroup> {
    if (a.degree() != b.degree() || !costs_.has_degree(2 * a.degree())) return std::nullopt;
    DraftGroup group = a;
    group.devices.insert(group.devices.end(), b.devices.begin(), b.devices.end());
    if (!one_vendor(group.devices)) return std::nullopt;
    for (const DeviceId device : group.devices) {
      if (node_of(device) != node_of(group.devices.front())) return std::nullopt;
    }
    return group;
  };
  if (own.groups.size() == 2) {
    auto group = merged(own.groups[0], own.groups[1]);
    if (!group) return false;
    group->samples = pipeline.micro_batch_size;
    own.groups = {*group};
    own.expert_parallel = 1;
    return true;
  }
  if (own.groups.size() != 1 || stage + 1 >= pipeline.stages.size()) return false;
  const DraftStage& next = pipeline.stages[stage + 1];
  if (next.groups.size() != 1) return false;
  auto group = merged(own.groups[0], next.groups[0]);
  if (!group) return false;
  own.groups = {*group};
  pipeline.stages.erase(pipeline.stages.begin() + static_cast<long>(stage) + 1);
  return true;
}

bool DraftMoves::change_groups(Draft& draft, const Pipelines& pipelines, Rng& rng) const {
  const DraftPipeline& own = draft.pipelines[pipelines.front()];
  const std::size_t stage = any_of_count(own.stages.size(), rng);
  const int how = static_cast<int>(rng.integer(0, 5));
  const bool every = limits_.uniform || rng.bernoulli(0.5);
  const int degree = own.stages[stage].groups[0].degree();
  const int type = type_of(own.stages[stage]);
  // Samples between the groups of a stage, or two neighbors side by side.
  if (how == 4) {
    for (const std::size_t p : pipelines) {
      std::vector<DraftGroup>& groups = draft.pipelines[p].stages[stage].groups;
      if (groups.size() < 2) return false;
      const std::size_t a = any_of_count(groups.size(), rng), b = any_of_count(groups.size(), rng);
      if (a == b || groups[a].samples < 2) return false;
      --groups[a].samples;
      ++groups[b].samples;
    }
    return true;
  }
  if (how == 5) {
    if (!limits_.mixed_stages) return false;
    for (const std::size_t p : pipelines) {
      DraftPipeline& pipeline = draft.pipelines[p];
      if (stage + 1 >= pipeline.stages.size()) return false;
      const DraftStage next = pipeline.stages[stage + 1];
      DraftStage& into = pipeline.stages[stage];
      into.groups.insert(into.groups.end(), next.groups.begin(), next.groups.end());
      pipeline.stages.erase(pipeline.stages.begin() + static_cast<long>(stage) + 1);
      while (pipeline.micro_batch_size < static_cast<int>(into.groups.size())) {
        pipeline.micro_batch_size *= 2;
        pipeline.micro_batches = std::max(1, pipeline.micro_batches / 2);
        for (DraftStage& other : pipeline.stages) {
          for (DraftGroup& group : other.groups) group.samples *= 2;
        }
      }
      for (DraftGroup& group : into.groups) group.samples = 0;
      if (!share_samples(pipeline)) return false;
    }
    return true;
  }
  bool any = false;
  for (const std::size_t p : pipelines) {
    DraftPipeline& pipeline = draft.pipelines[p];
    for (std::size_t s = pipeline.stages.size(); s-- > 0;) {
      if (s >= pipeline.stages.size()) continue;
      const DraftStage& here = pipeline.stages[s];
      const bool wanted =
          every ? here.groups[0].degree() == degree && type_of(here) == type : s == stage;
      if (!wanted) continue;
      // Pairs from the back, so that both of a pair are of the kind.
      const bool done =
          how >= 2 ? (here.groups.size() == 2 || s == 0 || !every ? merge_groups(pipeline, s)
                                                                  : merge_groups(pipeline, s - 1))
                   : split_group(pipeline, s, how == 0);
      any = any || done;
      if (!done && !every) return false;
      if (done && how >= 2 && every && s > 0) --s;
    }
  }
  return any;
}

bool DraftMoves::change_pipelines(Draft& draft, const DraftCosts::View& view, Rng& rng) const {
  const int how = static_cast<int>(rng.integer(0, 2));
  if (rng.bernoulli(0.5) || draft.pipelines.size() < 2) {
    const std::size_t first = pick_pipeline(draft, view, rng);
    Pipelines chosen = scope(draft, first, rng);
    // From the back: the second half of a cut one goes to the end.
    std::reverse(chosen.begin(), chosen.end());
    for (const std::size_t p : chosen) {
      if (!cut(draft, p, how)) return false;
    }
    return true;
  }
  // Neighbors in kind, all in pairs; or any two.
  if (limits_.uniform || rng.bernoulli(0.4)) {
    const std::size_t count = draft.pipelines.size();
    if (count % 2 != 0) return false;
    const bool halves = rng.bernoulli(0.5);
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < count / 2; ++i) {
      pairs.emplace_back(halves ? i : 2 * i, halves ? i + count / 2 : 2 * i + 1);
    }
    std::vector<std::size_t> gone;
    for (const auto& [a, b] : pairs) {
      if (!join(draft, a, b, how)) return false;
      gone.push_back(b);
    }
    std::sort(gone.rbegin(), gone.rend());
    for (const std::size_t p : gone) {
      draft.pipelines.erase(draft.pipelines.begin() + static_cast<long>(p));
    }
    return true;
  }
  const std::size_t a = any_of_count(draft.pipelines.size(), rng);
  const std::size_t b = any_of_count(draft.pipelines.size(), rng);
  if (a == b || !join(draft, a, b, how)) return false;
  draft.pipelines.erase(draft.pipelines.begin() + static_cast<long>(b));
  return true;
}

/// Adds a pipeline at the end: every other stage (0), the second half of the stages (1), or half of
/// each group (2).
bool DraftMoves::cut(Draft& draft, std::size_t pipeline, int how) const {
  DraftPipeline first = draft.pipelines[pipeline];
  const std::size_t count = first.stages.size();
  DraftPipeline second = first;
  if (how == 2) {
    for (std::size_t s = 0; s < count; ++s) {
      std::vector<DraftGroup>& groups = first.stages[s].groups;
      if (groups.size() > 1 && groups.size() % 2 == 0 && first.micro_batch_size > 1) {
        const auto middle = static_cast<long>(groups.size() / 2);
        second.stages[s].groups.assign(groups.begin() + middle, groups.end());
        groups.resize(groups.size() / 2);
      } else if (groups.size() == 1 && groups[0].degree() % 2 == 0) {
        const std::size_t half = groups[0].devices.size() / 2;
        if (!costs_.has_degree(static_cast<int>(half))) return false;
        second.stages[s].groups[0].devices.erase(
            second.stages[s].groups[0].devices.begin(),
            second.stages[s].groups[0].devices.begin() + static_cast<long>(half));
        groups[0].devices.resize(half);
      } else {
        return false;
      }
    }
  } else {
    if (count < 2) return false;
    first.stages.clear();
    std::vector<DraftStage> rest;
    for (std::size_t s = 0; s < count; ++s) {
      const bool stays = how == 0 ? s % 2 == 0 : s < count / 2;
      (stays ? first.stages : rest).push_back(second.stages[s]);
    }
    second.stages = rest;
  }
  for (DraftPipeline* half : {&first, &second}) {
    for (DraftStage& stage : half->stages) {
      if (stage.groups.size() == 1) stage.groups[0].samples = half->micro_batch_size;
    }
    if (!share_samples(*half)) return false;
    half->micro_batches = std::max(1, half->micro_batches / 2);
  }
  draft.pipelines[pipeline] = first;
  draft.pipelines.push_back(second);
  return true;
}

/// The stages of `b` become stages of `a`: by GPU type (0), behind its own (1), or side by side
/// with its own, as one group where they can be one (2). `b` stays, to be erased.
bool DraftMoves::join(Draft& draft, std::size_t a, std::size_t b, int how) const {
  DraftPipeline& into = draft.pipelines[a];
  const DraftPipeline& other = draft.pipelines[b];
  if (how == 2) {
    if (into.stages.size() != other.stages.size()) return false;
    int most = 1;
    for (std::size_t s = 0; s < into.stages.size(); ++s) {
      DraftStage& stage = into.stages[s];
      const DraftStage& added = other.stages[s];
      stage.groups.insert(stage.groups.end(), added.groups.begin(), added.groups.end());
      DraftPipeline probe;
      probe.micro_batch_size = into.micro_batch_size;
      probe.stages = {stage};
      if (merge_groups(probe, 0)) {
        stage = probe.stages[0];
      } else if (!limits_.mixed_stages) {
        return false;
      }
      most = std::max(most, static_cast<int>(stage.groups.size()));
    }
    while (into.micro_batch_size < most) into.micro_batch_size *= 2;
    for (DraftStage& stage : into.stages) {
      for (DraftGroup& group : stage.groups) group.samples = 0;
    }
    return share_samples(into);
  }
  if (into.micro_batch_size != other.micro_batch_size) return false;
  into.stages.insert(into.stages.end(), other.stages.begin(), other.stages.end());
  if (how == 0) {
    // Types in the order in which they first come.
    std::vector<int> order;
    for (const DraftStage& stage : into.stages) {
      if (std::find(order.begin(), order.end(), type_of(stage)) == order.end()) {
        order.push_back(type_of(stage));
      }
    }
    const auto rank = [&](const DraftStage& stage) {
      return std::find(order.begin(), order.end(), type_of(stage)) - order.begin();
    };
    std::stable_sort(into.stages.begin(), into.stages.end(),
                     [&](const DraftStage& x, const DraftStage& y) { return rank(x) < rank(y); });
  }
  return true;
}

bool DraftMoves::change_order(Draft& draft, const Pipelines& pipelines, Rng& rng) const {
  const std::size_t count = draft.pipelines[pipelines.front()].stages.size();
  if (count < 2) return false;
  const std::size_t a = any_of_count(count, rng), b = any_of_count(count, rng);
  const bool reverse = rng.bernoulli(0.2);
  const bool rotate = rng.bernoulli(0.5);
  if (!reverse && a == b) return false;
  for (const std::size_t p : pipelines) {
    std::vector<DraftStage>& stages = draft.pipelines[p].stages;
    if (reverse) {
      std::reverse(stages.begin(), stages.end());
    } else if (rotate) {
      const DraftStage moved = stages[a];
      stages.erase(stages.begin() + static_cast<long>(a));
      stages.insert(stages.begin() + static_cast<long>(b), moved);
    } else {
      std::swap(stages[a], stages[b]);
    }
  }
  return true;
}

/// A stage from one pipeline into another, next to one of its type if there is one.
bool DraftMoves::move_stage(Draft& draft, std::size_t from, Rng& rng) const {
  DraftPipeline& source = draft.pipelines[from];
  const std::size_t to = any_of_count(draft.pipelines.size(), rng);
  if (from == to || source.stages.size() < 2) return false;
  const std::size_t s = any_of_count(source.stages.size(), rng);
  DraftStage moved = source.stages[s];
  if (moved.groups.size() != 1) return false;
  DraftPipeline& target = draft.pipelines[to];
  source.stages.erase(source.stages.begin() + static_cast<long>(s));
  moved.groups[0].samples = target.micro_batch_size;
  std::size_t place = any_of_count(target.stages.size() + 1, rng);
  if (rng.bernoulli(0.7)) {
    for (std::size_t t = 0; t < target.stages.size(); ++t) {
      if (type_of(target.stages[t]) == type_of(moved)) place = t;
    }
  }
  target.stages.insert(target.stages.begin() + static_cast<long>(place), moved);
  return true;
}

bool DraftMoves::change_placement(Draft& draft, const DraftCosts::View& view, Rng& rng) const {
  const std::size_t p = pick_pipeline(draft, view, rng);
  const std::size_t q = any_of_count(draft.pipelines.size(), rng);
  DraftStage& a = draft.pipelines[p].stages[any_of_count(draft.pipelines[p].stages.size(), rng)];
  DraftStage& b = draft.pipelines[q].stages[any_of_count(draft.pipelines[q].stages.size(), rng)];
  DraftGroup& x = a.groups[any_of_count(a.groups.size(), rng)];
  DraftGroup& y = b.groups[any_of_count(b.groups.size(), rng)];
  if (&x == &y) return false;
  // Whole groups of whatever degree change places.
  std::swap(x.devices, y.devices);
  return true;
}

/// Idle devices in place of the stage's own, those of a group on one node and of its type; they are
/// idle no more.
bool DraftMoves::take_idle(DraftStage& stage, std::vector<DeviceId>& idle) const {
  for (DraftGroup& group : stage.groups) {
    const int type = input_.cluster.device(group.devices.front()).gpu_type;
    std::map<NodeId, std::vector<DeviceId>> nodes;
    for (const DeviceId device : idle) {
      if (input_.cluster.device(device).gpu_type == type) nodes[node_of(device)].push_back(device);
    }
    const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) {
      return node.second.size() >= group.devices.size();
    });
    if (found == nodes.end()) return false;
    group.devices.assign(found->second.begin(),
                         found->second.begin() + static_cast<long>(group.devices.size()));
    std::erase_if(idle, [&](DeviceId device) {
      return std::find(group.devices.begin(), group.devices.end(), device) != group.devices.end();
    });
  }
  return true;
}

bool DraftMoves::change_idle(Draft& draft, const DraftCosts::View& view, Rng& rng) const {
  const std::vector<DeviceId> used = devices_of(draft);
  std::vector<DeviceId> idle;
  std::set_difference(input_.devices.begin(), input_.devices.end(), used.begin(), used.end(),
                      std::back_inserter(idle));
  const std::size_t p = pick_pipeline(draft, view, rng);
  DraftPipeline& own = draft.pipelines[p];
  if (idle.empty() || rng.bernoulli(0.4)) {
    if (own.stages.size() > 1 && rng.bernoulli(0.7)) {
      own.stages.erase(own.stages.begin() +
                       static_cast<long>(any_of_count(own.stages.size(), rng)));
    } else if (draft.pipelines.size() > 1) {
      draft.pipelines.erase(draft.pipelines.begin() + static_cast<long>(p));
    } else {
      return false;
    }
    return true;
  }
  // A pipeline or a stage like one that is there, which keeps all alike.
  if (limits_.uniform && rng.bernoulli(0.3)) {
    DraftPipeline added = own;
    for (DraftStage& stage : added.stages) {
      if (!take_idle(stage, idle)) return false;
    }
    draft.pipelines.push_back(added);
    return true;
  }
  if (limits_.experts && (limits_.uniform || rng.bernoulli(0.3))) {
    const std::size_t place = any_of_count(own.stages.size(), rng);
    DraftStage added = own.stages[place];
    if (!take_idle(added, idle)) return false;
    own.stages.insert(own.stages.begin() + static_cast<long>(place), added);
    return true;
  }
  // Idle devices of one node, as wide as they come.
  const DeviceId seed = any_of(idle, rng);
  std::vector<DeviceId> together;
  for (const DeviceId device : idle) {
    if (node_of(device) == node_of(seed) &&
        input_.cluster.device(device).gpu_type == input_.cluster.device(seed).gpu_type) {
      together.push_back(device);
    }
  }
  std::vector<int> degrees;
  for (const int degree : costs_.degrees()) {
    if (degree <= static_cast<int>(together.size())) degrees.push_back(degree);
  }
  if (degrees.empty()) return false;
  together.resize(as_size(any_of(degrees, rng)));
  DraftStage stage;
  stage.groups = {{together, own.micro_batch_size}};
  stage.chunks.assign(as_size(draft.virtual_stages), {});
  if (rng.bernoulli(0.3)) {
    DraftPipeline added;
    added.micro_batch_size = own.micro_batch_size;
    added.stages = {stage};
    draft.pipelines.push_back(added);
    return true;
  }
  own.stages.insert(
      own.stages.begin() + static_cast<long>(any_of_count(own.stages.size() + 1, rng)), stage);
  return true;
}

/// Twice or half as much, or one more or less, of what ZeRO divides to the groups of a GPU type.
bool DraftMoves::change_weights(Draft& draft, Rng& rng) const {
  std::set<int> types;
  for (const DeviceId device : devices_of(draft)) {
    types.insert(input_.cluster.device(device).gpu_type);
  }
  const int type = any_of(std::vector<int>(types.begin(), types.end()), rng);
  int& weight = draft.state_weights[as_size(type)];
  const std::vector<int> next = {2 * weight, weight / 2, weight + 1, weight - 1};
  weight = any_of(next, rng);
  return weight >= 1 && weight <= kMostDraftWeight;
}

bool DraftMoves::change_zero(Draft& draft, Rng& rng) const {
  // Where even shards fit, uneven ones only lengthen rings: layers are divided by memory, too.
  if (!draft.state_weights.empty() && rng.bernoulli(kWeighs)) return change_weights(draft, rng);
  const std::vector<int>& stages = input_.job.allowed.zero_stages;
  if (stages.size() < 2) return false;
  const int stage = any_of(stages, rng);
  if (stage == draft.zero.stage) return false;
  draft.zero = {stage, 0};
  draft.lighter_layers = 0;
  return true;
}

bool DraftMoves::change_schedule(Draft& draft, Rng& rng) const {
  const ir::ScheduleKind kind = any_of(input_.job.allowed.schedules, rng);
  const models::ScheduleEntry* entry = models::find_schedule(kind);
  if (entry == nullptr || entry->folds_back) return false;  // A draft runs through stages in order.
  if (entry->uses_chunks && !limits_.chunks) return false;
  const int chunks = entry->uses_chunks ? static_cast<int>(rng.integer(2, 5)) : 1;
  if (kind == draft.schedule && chunks == draft.virtual_stages) return false;
  draft.schedule = kind;
  draft.virtual_stages = chunks;
  for (DraftPipeline& pipeline : draft.pipelines) {
    for (DraftStage& stage : pipeline.stages) stage.chunks.assign(as_size(chunks), {});
  }
  return true;
}

bool DraftMoves::change_transfer(Draft& draft, Rng& rng) const {
  if (rng.bernoulli(0.5)) {
    if (limits_.gathers && has_gathers(draft) && rng.bernoulli(0.5)) {
      draft.gathers_next = !draft.gathers_next;
    } else {
      switch_overlap(draft, limits_.gathers);
    }
    return true;
  }
  draft.transfer = other_transfer(draft.transfer);
  return true;
}

}  // namespace orrery::planners
