#include "models/lower/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "models/base/check.h"
#include "models/cost/expert_share.h"
#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

bool same_devices(const std::vector<ir::Group>& a, const std::vector<ir::Group>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ir::Group& x, const ir::Group& y) { return x.devices == y.devices; });
}

void add_ranks(const ir::Stage& stage, int pipeline, int stage_index, bool collapsed,
               Placement& out) {
  const std::vector<ir::Group>& groups = stage.segments.front().groups;
  const bool uniform =
      std::all_of(stage.segments.begin(), stage.segments.end(),
                  [&](const ir::Segment& s) { return same_devices(s.groups, groups); });
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<DeviceId>& devices = groups[g].devices;
    const std::size_t step = collapsed && uniform ? devices.size() : 1;
    for (std::size_t i = 0; i < devices.size(); i += step) {
      const auto first = devices.begin() + static_cast<std::ptrdiff_t>(i);
      ir::Rank rank;
      rank.device = devices[i];
      rank.devices.assign(first, first + static_cast<std::ptrdiff_t>(step));
      rank.pipeline = pipeline;
      rank.stage = stage_index;
      rank.group = static_cast<std::int32_t>(g);
      rank.position = static_cast<std::int32_t>(i);
      rank.tensor_parallel = groups[g].tensor_parallel;
      for (const DeviceId device : rank.devices) {
        out.rank_of[device] = {static_cast<std::int32_t>(out.ranks.size())};
      }
      out.ranks.push_back(std::move(rank));
    }
  }
}

PlacedSegment make_element(const ir::Segment& segment, int pipeline, int stage, Placement& out) {
  PlacedSegment element = {pipeline, stage, &segment, {}, {}};
  std::int32_t first_sample = 0;
  for (std::size_t g = 0; g < segment.groups.size(); ++g) {
    const ir::Group& group = segment.groups[g];
    element.infos.push_back(static_cast<std::int32_t>(out.segments.size()));
    ir::SegmentInfo info;
    info.pipeline = pipeline;
    info.stage = stage;
    info.virtual_stage = segment.virtual_stage;
    info.group = static_cast<std::int32_t>(g);
    info.first_sample = first_sample;
    info.samples = group.samples;
    info.first_block = segment.first_block;
    info.last_block = segment.last_block;
    info.tensor_parallel = group.tensor_parallel;
    info.sequence_degree = group.sequence_degree;
    info.sequence = group.sequence;
    info.expert_parallel = segment.expert_parallel;
    info.recompute = segment.recompute;
    info.zero = segment.zero;
    info.state_weight = group.state_weight;
    const ExpertShare experts = expert_share(segment, group);
    info.experts = experts.experts;
    info.expert_samples = experts.samples;
    out.segments.push_back(info);
    first_sample += group.samples;
    std::vector<RankId> ranks;
    for (const DeviceId device : group.devices) {
      const RankId rank = out.rank_of[device];
      if (rank.valid() && (ranks.empty() || ranks.back() != rank)) ranks.push_back(rank);
    }
    element.ranks.push_back(std::move(ranks));
  }
  return element;
}

/// Elements of other pipelines that compute for this one, each once.
void add_detours(const ir::Plan& plan, Placement& out) {
  out.detours.resize(plan.pipelines.size());
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    std::set<std::pair<int, int>> known;  // Stage, pipeline.
    for (const ir::Reroute& reroute : plan.pipelines[p].reroutes) {
      if (!known.insert({reroute.stage, reroute.to_pipeline}).second) continue;
      std::vector<int> positions;  // In the own chain, in its order.
      for (std::size_t e = 0; e < out.elements[p].size(); ++e) {
        if (out.elements[p][e].stage == reroute.stage) positions.push_back(static_cast<int>(e));
      }
      std::size_t next = 0;
      for (const PlacedSegment& other : out.elements[reroute.to_pipeline]) {
        if (other.stage != reroute.stage) continue;
        Detour detour;
        detour.position = positions.at(next++);
        detour.to_pipeline = reroute.to_pipeline;
        detour.element = make_element(*other.segment, static_cast<int>(p), reroute.stage, out);
        out.detours[p].push_back(std::move(detour));
      }
    }
  }
}

/// Each stage keeps a copy of the next one on its own groups, the last of the first.
void add_shadows(const ir::Plan& plan, Placement& out) {
  out.shadows.resize(plan.pipelines.size());
  if (plan.redundancy == ir::Redundancy::none) return;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const std::vector<ir::Stage>& stages = plan.pipelines[p].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const ir::Stage& next = stages[(s + 1) % stages.size()];
      out.shadow_segments.push_back(
          std::make_unique<const ir::Segment>(redundant_segment(stages[s], next.segments.front())));
      out.shadows[p].push_back(
          make_element(*out.shadow_segments.back(), static_cast<int>(p), static_cast<int>(s), out));
      for (const std::int32_t info : out.shadows[p].back().infos) {
        out.segments[info].redundant = true;
      }
    }
  }
}

}  // namespace

std::vector<PlanDefect> find_redundancy_defects(const ir::Plan& plan) {
  std::vector<PlanDefect> defects;
  if (plan.redundancy == ir::Redundancy::none) return defects;
  const std::string refused = std::string("redundancy ") + ir::name_of(plan.redundancy);
  const auto add = [&](std::string path, const char* why, std::string hint) {
    defects.push_back({std::move(path), refused + " " + why, std::move(hint)});
  };
  if (plan.virtual_stages > 1) {
    add("virtual_stages", "needs stages that hold one run of blocks",
        "set virtual_stages 1 and another schedule");
  }
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[p];
    const std::string at = fmt::format("pipelines[{}]", p);
    if (pipeline.stages.size() < 2) {
      add(at, "needs a next stage on other devices", "cut the pipeline into two stages or more");
    }
    if (!pipeline.reroutes.empty()) {
      add(at + ".reroutes", "has no place for micro-batches of other pipelines",
          "remove the reroutes, or set redundancy: none");
    }
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const std::vector<ir::Segment>& segments = pipeline.stages[s].segments;
      const std::string stage = fmt::format("{}.stages[{}]", at, s);
      if (segments.size() > 1 && plan.virtual_stages == 1) {
        add(stage, "needs stages of one segment", "give all blocks of the stage one strategy");
      }
      for (std::size_t i = 0; i < segments.size(); ++i) {
        const std::string segment = fmt::format("{}.segments[{}]", stage, i);
        if (segments[i].zero.shards_optimizer()) {
          add(segment + ".zero", "copies whole states, which ZeRO divides", "set ZeRO stage 0");
        }
        if (segments[i].expert_parallel > 1) {
          add(segment + ".expert_parallel", "copies whole blocks, whose experts are divided here",
              "set expert_parallel 1");
        }
      }
    }
  }
  return defects;
}

bool is_idle(const ir::Plan& plan, int pipeline, int stage) {
  const ir::Pipeline& own = plan.pipelines[pipeline];
  const auto left =
      std::count_if(own.reroutes.begin(), own.reroutes.end(),
                    [&](const ir::Reroute& reroute) { return reroute.stage == stage; });
  if (left < own.micro_batches) return false;
  return std::none_of(plan.pipelines.begin(), plan.pipelines.end(), [&](const ir::Pipeline& other) {
    return std::any_of(other.reroutes.begin(), other.reroutes.end(), [&](const ir::Reroute& r) {
      return r.stage == stage && r.to_pipeline == pipeline;
    });
  });
}

Placement place(const ir::Plan& plan, const Cluster& cluster, bool collapsed) {
  Placement out;
  out.rank_of.resize(cluster.devices.size());
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const std::vector<ir::Stage>& stages = plan.pipelines[p].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (is_idle(plan, static_cast<int>(p), static_cast<int>(s))) continue;
      add_ranks(stages[s], static_cast<int>(p), static_cast<int>(s), collapsed, out);
    }
    std::vector<PlacedSegment>& elements = out.elements.emplace_back();
    const ScheduleEntry& schedule = schedule_entry(plan.schedule);
    const auto count = static_cast<int>(stages.size());
    for (int chunk = 0; chunk < plan.virtual_stages; ++chunk) {
      for (int step = 0; step < count; ++step) {
        const int s = schedule.stage_at(chunk, step, count);
        for (const ir::Segment& segment : stages[s].segments) {
          if (segment.virtual_stage != chunk) continue;
          elements.push_back(make_element(segment, static_cast<int>(p), s, out));
        }
      }
    }
    ORRERY_CHECK(!elements.empty(), "pipeline {} has no segments", p);
  }
  add_detours(plan, out);
  add_shadows(plan, out);
  return out;
}

int Placement::count(int pipeline) const {
  const std::size_t p = pipeline;
  return static_cast<int>(elements[p].size() + detours[p].size() + shadows[p].size());
}

const PlacedSegment& Placement::element(int pipeline, int number) const {
  const std::size_t p = pipeline;
  const std::size_t e = number;
  if (e < elements[p].size()) return elements[p][e];
  const std::size_t beyond = e - elements[p].size();
  if (beyond < detours[p].size()) return detours[p][beyond].element;
  return shadows[p][beyond - detours[p].size()];
}

std::vector<int> Placement::route(const ir::Plan& plan, int pipeline, int micro_batch) const {
  const std::size_t p = pipeline;
  const ScheduleEntry& schedule = schedule_entry(plan.schedule);
  std::vector<int> numbers;
  for (std::size_t e = 0; e < elements[p].size(); ++e) {
    if (schedule.visits(micro_batch, elements[p][e].segment->virtual_stage)) {
      numbers.push_back(static_cast<int>(e));
    }
  }
  for (const ir::Reroute& reroute : plan.pipelines[p].reroutes) {
    if (reroute.micro_batch != micro_batch) continue;
    for (std::size_t d = 0; d < detours[p].size(); ++d) {
      const Detour& detour = detours[p][d];
      if (detour.element.stage != reroute.stage || detour.to_pipeline != reroute.to_pipeline) {
        continue;
      }
      numbers[detour.position] = static_cast<int>(elements[p].size() + d);
    }
  }
  return numbers;
}

}  // namespace orrery::models
