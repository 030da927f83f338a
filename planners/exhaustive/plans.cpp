// Decisions inside a structure with given splits, for `exhaustive`: what a pipeline does with each
// number of samples, and the plan that comes of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/cost/memory.h"
#include "planners/exhaustive/search.h"
#include "planners/kit/integers.h"

namespace orrery::planners::exhaustive {
ExhaustiveSearch::Choices ExhaustiveSearch::choices(int kind, const std::vector<int>& split,
                                                    const Replicas& replicas, int micro_batches) {
  const std::vector<int>& stages = chain(kind).stages;
  const int count = static_cast<int>(stages.size());
  Choices result;
  StagePlace place;
  for (int s = 0; s < count; ++s) {
    const auto index = static_cast<std::size_t>(s);
    place.stage = stages[index];
    place.blocks = split[index];
    place.in_flight =
        models::micro_batches_in_flight(costs_->common().schedule, count, s, micro_batches, 1);
    result.push_back(&costs_->choices(place, replicas));
    place.first += place.blocks;
    place.sender = costs_->leader(place.stage);
  }
  return result;
}

/// From the last stage to the first, as a stage's time includes the hop into the next one: for each
/// choice of a stage the decisions behind it that no other one beats. Best for some number of
/// micro-batches; nothing when a stage has no choice.
std::vector<ExhaustiveSearch::Decision> ExhaustiveSearch::decide(
    const Choices& choices, std::size_t micro_batch_size) const {
  const bool gpipe = costs_->common().schedule == ir::ScheduleKind::gpipe;
  for (const auto* by_samples : choices) {
    if (by_samples->size() <= micro_batch_size || (*by_samples)[micro_batch_size].empty()) {
      return {};
    }
  }
  std::vector<Decision> behind(1);
  for (std::size_t s = choices.size(); s-- > 0;) {
    std::vector<Decision> with;
    for (const StageChoice& own : (*choices[s])[micro_batch_size]) {
      for (const Decision& later : behind) {
        const double hop = later.stages.empty() ? 0 : later.stages.back()->hop_in;
        const double forward = own.forward + hop;
        const double backward = own.backward + hop;
        Decision more;
        more.sum = later.sum + forward + backward;
        if (gpipe) {
          more.rate_forward = std::max(later.rate_forward, forward);
          more.rate_backward = std::max(later.rate_backward, backward);
        } else {
          more.rate_both = std::max(later.rate_both, forward + backward);
        }
        // A decision that ends in a shorter hop stays: that hop is not counted yet.
        const auto as_good = [&](const Decision& other) {
          return other.sum <= more.sum && other.rate_forward <= more.rate_forward &&
                 other.rate_backward <= more.rate_backward && other.rate_both <= more.rate_both &&
                 other.stages.back()->hop_in <= own.hop_in;
        };
        if (std::any_of(with.begin(), with.end(), as_good)) continue;
        more.stages.reserve(choices.size());
        more.stages = later.stages;
        more.stages.push_back(&own);
        with.push_back(std::move(more));
      }
    }
    behind = std::move(with);
  }
  return behind;
}

ExhaustiveSearch::Curve ExhaustiveSearch::curve(int kind, const std::vector<int>& split,
                                                const Replicas& replicas) {
  const std::size_t stages = chain(kind).stages.size();
  const bool gpipe = costs_->common().schedule == ir::ScheduleKind::gpipe;
  Curve result(samples_ + 1, kNever);
  std::vector<bool> too_large(samples_ + 1, false);  // By size; more micro-batches need no less.
  std::vector<std::vector<Decision>> decisions(samples_ + 1);
  for (std::size_t count = 1; count <= samples_; ++count) {
    // Beyond as many micro-batches as stages nothing more is in flight, but under GPipe.
    const bool settled = !gpipe && count > stages;
    const Choices by_stage =
        settled ? Choices{} : choices(kind, split, replicas, static_cast<int>(count));
    bool any = false;
    for (std::size_t size = 1; count * size <= samples_; ++size) {
      if (too_large[size]) continue;
      if (!settled) decisions[size] = decide(by_stage, size);
      too_large[size] = decisions[size].empty();
      for (const Decision& one : decisions[size]) {
        result[count * size] = std::min(result[count * size], one.time(static_cast<int>(count)));
        any = true;
      }
    }
    if (!any) break;
  }
  return result;
}

std::vector<ExhaustiveSearch::Curve> ExhaustiveSearch::curves_of(const Replicas& replicas) {
  const bool same = std::all_of(replicas.begin(), replicas.end(), [&](int copies) {
    return copies == static_cast<int>(structure_->size());
  });
  std::vector<Curve> result;
  for (std::size_t p = 0; p < chosen_.size(); ++p) {
    const Table& table = *chosen_from_[p];
    result.push_back(same ? table.curves[chosen_[p]]
                          : curve((*structure_)[p], table.splits[chosen_[p]], replicas));
  }
  return result;
}

/// Shares of the batch by the dynamic program, this time with its decisions.
void ExhaustiveSearch::offer() {
  const Replicas copies = replicas();
  const std::vector<Curve> curves = curves_of(copies);
  std::vector<Curve> before{nothing(samples_ + 1)};
  for (const Curve& one : curves) before.push_back(join(before.back(), one, kNever));
  if (before.back()[samples_] == kNever) return;  // Fewer shards than were hoped for.
  std::vector<int> shares(curves.size(), 0);
  std::size_t left = samples_;
  for (std::size_t p = curves.size(); p-- > 0;) {
    std::size_t best = 1;
    double time = kNever;
    for (std::size_t n = 1; n <= left; ++n) {
      const double one = std::max(before[p][left - n], curves[p][n]);
      if (one < time) {
        time = one;
        best = n;
      }
    }
    shares[p] = static_cast<int>(best);
    left -= best;
  }
  ir::Plan plan = build(copies, shares);
  const Seconds estimate = estimator_.estimate(plan);
  if (!(estimate.value < threshold())) return;
  best_.insert(std::upper_bound(best_.begin(), best_.end(), estimate.value), estimate.value);
  std::string what = describe(plan);
  ranking_.offer(estimate, std::move(plan), std::move(what));
}

ir::Plan ExhaustiveSearch::build(const Replicas& replicas, const std::vector<int>& shares) {
  const CommonChoice& common = costs_->common();
  const auto devices = place_devices(space_, *structure_);
  ir::Plan plan;
  plan.schedule = common.schedule;
  plan.communication.activation_transfer = common.transfer;
  for (std::size_t p = 0; p < shares.size(); ++p) {
    const std::vector<int>& split = chosen_from_[p]->splits[chosen_[p]];
    ir::Pipeline pipeline;
    Decision decision;
    double time = kNever;
    for (int size = 1; size <= shares[p]; ++size) {
      const int count = shares[p] / size;
      if (count * size != shares[p]) continue;
      for (Decision& one : decide(choices((*structure_)[p], split, replicas, count),
                                  static_cast<std::size_t>(size))) {
        if (!(one.time(count) < time)) continue;
        time = one.time(count);
        decision = std::move(one);
        pipeline.micro_batches = count;
        pipeline.micro_batch_size = size;
      }
    }
    std::reverse(decision.stages.begin(), decision.stages.end());
    int first = 0;
    for (std::size_t s = 0; s < split.size(); ++s) {
      ir::Segment segment;
      segment.first_block = BlockId{first};
      first += split[s];
      segment.last_block = BlockId{first - 1};
      segment.recompute = decision.stages[s]->recompute;
      segment.zero.stage = common.zero;
      for (std::size_t g = 0; g < devices[p][s].size(); ++g) {
        segment.groups.push_back(tensor_group(input_, devices[p][s][g],
                                              static_cast<int>(devices[p][s][g].size()),
                                              decision.stages[s]->samples[g]));
      }
      pipeline.stages.push_back({{std::move(segment)}});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

/// "[2 X: 0 to 3 > Y + Y: 4 to 9] 4 x 2": GPUs and blocks by stage, micro-batches.
std::string ExhaustiveSearch::describe(const ir::Plan& plan) const {
  std::vector<std::string> pipelines;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    std::vector<std::string> stages;
    for (const ir::Stage& stage : pipeline.stages) {
      const ir::Segment& segment = stage.segments.front();
      std::vector<std::string> groups;
      for (const ir::Group& group : segment.groups) {
        const std::string& gpu = input_.cluster.gpu(group.devices.front()).name;
        groups.push_back(
            group.tensor_parallel == 1 ? gpu : fmt::format("{} {}", group.tensor_parallel, gpu));
      }
      stages.push_back(fmt::format("{}: {} to {}", fmt::join(groups, " + "),
                                   segment.first_block.value, segment.last_block.value));
    }
    pipelines.push_back(fmt::format("[{}] {} x {}", fmt::join(stages, " > "),
                                    pipeline.micro_batches, pipeline.micro_batch_size));
  }
  return fmt::format("{}", fmt::join(pipelines, ", "));
}

/// The pipeline that lacks least memory, of the first few.
std::string ExhaustiveSearch::squeeze(const CommonChoice& common) {
  costs_.emplace(input_, space_, common);
  constexpr int kMostLooks = 20'000;
  int looks = 0;
  ExhaustiveCosts::Squeeze nearest{kNever, "no pipeline was looked at"};
  const int copies = common.zero > 0 ? static_cast<int>(input_.devices.size()) : 0;
  const Replicas same(copies > 0 ? static_cast<std::size_t>(input_.workload.size()) : 0, copies);
  for (const ChainKind& kind : space_.chains) {
    const int count = static_cast<int>(kind.stages.size());
    const bool on =
        for_each_composition(input_.workload.size(), count, 1, [&](const std::vector<int>& split) {
          if (++looks > kMostLooks) return false;
          ExhaustiveCosts::Squeeze worst;
          StagePlace place;
          for (int s = 0; s < count; ++s) {
            place.stage = kind.stages[static_cast<std::size_t>(s)];
            place.blocks = split[static_cast<std::size_t>(s)];
            place.in_flight = models::micro_batches_in_flight(common.schedule, count, s,
                                                              static_cast<int>(samples_), 1);
            ExhaustiveCosts::Squeeze one = costs_->squeeze(place, same);
            if (worst.ratio < one.ratio) worst = std::move(one);
            place.first += place.blocks;
          }
          if (worst.ratio < nearest.ratio) nearest = std::move(worst);
          return true;
        });
    if (!on) break;
  }
  return nearest.words;
}

}  // namespace orrery::planners::exhaustive
