#include "planners/recovery/bamboo/shadows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "planners/recovery/kit/replan.h"

namespace orrery::planners {
namespace {

/// The blocks of both, which follow one another, on the devices of `host`.
ir::Stage merged(const ir::Stage& host, const ir::Stage& guest) {
  ir::Stage result = host;
  ir::Segment& all = result.segments.front();
  const ir::Segment& more = guest.segments.front();
  all.first_block = std::min(all.first_block, more.first_block);
  all.last_block = std::max(all.last_block, more.last_block);
  all.recompute = std::max(all.recompute, more.recompute);
  return result;
}

BlockCut cut_of(const ir::Pipeline& pipeline) {
  BlockCut cut;
  for (const ir::Stage& stage : pipeline.stages) {
    cut.push_back(stage.segments.front().first_block.value);
  }
  return cut;
}

/// Stage `s` of a pipeline is lost: why that is fatal; empty: its shadow lives and is free.
std::string why_fatal(const ir::Pipeline& pipeline, std::size_t p, std::size_t s,
                      const std::vector<char>& lost, const BlockCut& cut) {
  const std::size_t shadow = (s + pipeline.stages.size() - 1) % pipeline.stages.size();
  const std::string stage = fmt::format("stage {} of pipeline {}", s, p);
  if (is_overloaded(pipeline.stages[s], cut)) return stage + " computed for two";
  if (lost[shadow] != 0) return stage + " is lost with its shadow";
  if (is_overloaded(pipeline.stages[shadow], cut)) {
    return "the shadow of " + stage + " had taken over before";
  }
  return "";
}

}  // namespace

BlockCut common_cut(const ir::Plan& plan) {
  std::set<int> all;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    const BlockCut own = cut_of(pipeline);
    all.insert(own.begin(), own.end());
  }
  return {all.begin(), all.end()};
}

std::string redundancy_problem(const ir::Plan& plan) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    const auto& first = pipeline.stages.front().segments.front().groups;
    for (const ir::Stage& stage : pipeline.stages) {
      if (stage.segments.size() != 1) return "a stage of several segments";
      const auto& groups = stage.segments.front().groups;
      if (!std::equal(groups.begin(), groups.end(), first.begin(), first.end(),
                      [](const ir::Group& a, const ir::Group& b) {
                        return a.devices.size() == b.devices.size() &&
                               a.tensor_parallel == b.tensor_parallel && a.samples == b.samples;
                      })) {
        return "stages of different width";
      }
    }
    if (cut_of(pipeline) != cut_of(plan.pipelines.front())) {
      return "pipelines that are cut differently";
    }
  }
  return "";
}

bool is_overloaded(const ir::Stage& stage, const BlockCut& cut) {
  const ir::Segment& blocks = stage.segments.front();
  return std::count_if(cut.begin(), cut.end(), [&](int first) {
           return blocks.first_block.value <= first && first <= blocks.last_block.value;
         }) > 1;
}

int count_overloaded(const ir::Plan& plan, const BlockCut& cut) {
  int count = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    count += static_cast<int>(
        std::count_if(pipeline.stages.begin(), pipeline.stages.end(),
                      [&](const ir::Stage& stage) { return is_overloaded(stage, cut); }));
  }
  return count;
}

ShadowOutcome take_over(const ir::Plan& plan, const std::vector<DeviceId>& live,
                        const BlockCut& cut) {
  ShadowOutcome outcome;
  ir::Plan result = plan;
  result.predicted.reset();
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[p];
    std::vector<char> lost;
    for (const ir::Stage& stage : pipeline.stages) {
      lost.push_back(all_live(ir::devices_of(stage), live) ? 0 : 1);
    }
    std::vector<ir::Stage> chain = pipeline.stages;
    for (std::size_t s = chain.size(); s-- > 0;) {
      if (lost[s] == 0) continue;
      outcome.fatal = why_fatal(pipeline, p, s, lost, cut);
      if (!outcome.fatal.empty()) return outcome;
      // Not lost: neighbors of a lost stage on both sides would be fatal for one of the two.
      const std::size_t host = s == 0 ? 1 : s - 1;
      chain[host] = merged(chain[host], chain[s]);
      ++outcome.taken_over;
    }
    std::vector<ir::Stage>& left = result.pipelines[p].stages;
    left.clear();
    for (std::size_t s = 0; s < chain.size(); ++s) {
      if (lost[s] == 0) left.push_back(std::move(chain[s]));
    }
  }
  outcome.plan = std::move(result);
  return outcome;
}

models::StateReplica shadow_copy(const models::StateReplica& copy, const BlockCut& cut) {
  const std::vector<DeviceId> devices = ir::devices_of(*copy.layout);
  std::map<DeviceId, DeviceId> shadow_of;
  for (const ir::Pipeline& pipeline : copy.layout->pipelines) {
    const std::size_t stages = pipeline.stages.size();
    for (std::size_t s = 0; s < stages; ++s) {
      const ir::Stage& before = pipeline.stages[(s + stages - 1) % stages];
      if (stages < 2 || is_overloaded(pipeline.stages[s], cut) || is_overloaded(before, cut)) {
        continue;
      }
      const std::vector<DeviceId> own = ir::devices_of(pipeline.stages[s]);
      const std::vector<DeviceId> shadows = ir::devices_of(before);
      for (std::size_t i = 0; i < std::min(own.size(), shadows.size()); ++i) {
        shadow_of[own[i]] = shadows[i];
      }
    }
  }
  models::StateReplica result = copy;
  result.stored_on.clear();
  result.lost_shards.clear();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto found = shadow_of.find(devices[i]);
    result.stored_on.push_back(found == shadow_of.end() ? devices[i] : found->second);
    // A shadow whose own share is gone has lost its memory.
    const auto holder = std::lower_bound(devices.begin(), devices.end(), result.stored_on.back());
    const auto position = static_cast<std::uint32_t>(holder - devices.begin());
    if (found == shadow_of.end() ||
        std::binary_search(copy.lost_shards.begin(), copy.lost_shards.end(), position)) {
      result.lost_shards.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return result;
}

bool should_reconfigure(const BambooCounts& counts) {
  const int active = counts.pipelines * counts.stages - counts.overloaded;
  if (counts.overloaded > 0 && counts.waiting >= counts.overloaded) return true;
  constexpr double kRisk = 0.05;
  if (counts.overloaded > 0 && (active < 1 || 2.0 * counts.overloaded / active > kRisk))
    return true;
  return (active + counts.waiting) / counts.stages > counts.pipelines;
}

}  // namespace orrery::planners
