#include "planners/hexiscale_milp/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "planners/hexiscale/layers.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

HexiscaleMilpSpace::HexiscaleMilpSpace(const PlannerInput& input, const HexiscaleSettings& settings,
                                       const HexiscaleCosts& costs)
    : input_(input),
      settings_(settings),
      costs_(costs),
      micro_batches_(static_cast<int>(input.job.global_batch / settings.micro_batch_size)) {
  find_classes();
  for (int machine = 0; machine < machines_; ++machine) find_kinds(machine);
}

bool HexiscaleMilpSpace::interchangeable(DeviceId a, DeviceId b) const {
  const auto same = [](const models::Path& p, const models::Path& q) {
    return p.bandwidth == q.bandwidth && p.latency == q.latency;
  };
  const models::Topology& topology = input_.topology;
  if (!same(topology.path(a, b), topology.path(b, a))) return false;
  return std::all_of(input_.devices.begin(), input_.devices.end(), [&](DeviceId x) {
    return x == a || x == b ||
           (same(topology.path(a, x), topology.path(b, x)) &&
            same(topology.path(x, a), topology.path(x, b)));
  });
}

void HexiscaleMilpSpace::find_classes() {
  std::map<std::pair<NodeId, int>, int> machine_of;
  for (const DeviceId device : input_.devices) {
    const models::Device& d = input_.cluster.device(device);
    const auto [place, added] = machine_of.try_emplace({d.node, d.gpu_type}, machines_);
    if (added) ++machines_;
    const int machine = place->second;
    const auto known =
        std::find_if(classes_.begin(), classes_.end(), [&](const MilpDeviceClass& c) {
          return c.machine == machine && interchangeable(c.devices.front(), device);
        });
    if (known == classes_.end()) {
      classes_.push_back({machine, {device}});
    } else {
      known->devices.push_back(device);
    }
  }
}

void HexiscaleMilpSpace::find_kinds(int machine) {
  std::vector<int> own;
  int devices = 0;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    if (classes_[c].machine != machine) continue;
    own.push_back(static_cast<int>(c));
    devices += static_cast<int>(classes_[c].devices.size());
  }
  std::map<std::vector<int>, int> place_of;  // By the classes of the members.
  std::vector<int> room(own.size() + 1, 0);  // Devices of the classes from a position on.
  for (std::size_t i = own.size(); i-- > 0;) {
    room[i] = room[i + 1] + static_cast<int>(classes_[own[i]].devices.size());
  }
  GroupKind kind;
  kind.machine = machine;
  const std::function<void(std::size_t, int)> choose = [&](std::size_t position, int left) {
    if (left > room[position] || too_many_kinds()) return;
    if (left == 0) {
      std::vector<int> involved;
      for (const auto& [c, count] : kind.members) involved.push_back(c);
      const auto [place, added] = place_of.try_emplace(involved, places_);
      if (added) {
        ++places_;
        place_members_.emplace_back();
        for (const int c : involved) {
          place_members_.back().push_back(classes_[c].devices.front());
        }
      }
      kind.place = place->second;
      kinds_.push_back(kind);
      kinds_.back().per_layer = costs_.per_layer(sample(static_cast<int>(kinds_.size()) - 1, -1));
      if (!std::isfinite(kinds_.back().per_layer.value)) kinds_.pop_back();
      return;
    }
    const int c = own[position];
    const int most = std::min(left, static_cast<int>(classes_[c].devices.size()));
    for (int count = most; count >= 0; --count) {
      if (count > 0) kind.members.emplace_back(c, count);
      choose(position + 1, left - count);
      if (count > 0) kind.members.pop_back();
    }
  };
  for (const int degree : costs_.tensor_degrees()) {
    if (degree > devices) break;
    kind.size = degree;
    choose(0, degree);
  }
}

/// Devices for a group of the kind next to a group of `skipped_kind` (-1: none).
std::vector<DeviceId> HexiscaleMilpSpace::sample(int kind, int skipped_kind) const {
  std::vector<DeviceId> devices;
  for (const auto& [c, count] : kinds_[kind].members) {
    std::ptrdiff_t skip = 0;
    if (skipped_kind >= 0) {
      for (const auto& [other, taken] : kinds_[skipped_kind].members) {
        if (other == c) skip = taken;
      }
    }
    const auto& all = classes_[c].devices;
    devices.insert(devices.end(), all.begin() + skip, all.begin() + skip + count);
  }
  return devices;
}

bool HexiscaleMilpSpace::coexist(int from, int to) const {
  for (const auto& [c, count] : kinds_[from].members) {
    for (const auto& [other, taken] : kinds_[to].members) {
      const auto have = static_cast<int>(classes_[c].devices.size());
      if (other == c && count + taken > have) return false;
    }
  }
  return true;
}

Seconds HexiscaleMilpSpace::hop(int from, int to) const {
  return costs_.hop(sample(from, -1), sample(to, from));
}

Seconds HexiscaleMilpSpace::exchange(int place, int other, int holders) const {
  const double hidden = input_.workload.shape.hidden;
  const Bytes part{12 * hidden * hidden * ir::size_of(input_.workload.dtype) / holders};
  Seconds worst;
  const auto pay = [&](DeviceId a, DeviceId b) {
    const models::Path path = input_.topology.path(a, b);
    worst = std::max(worst, 2 * (path.latency + part / path.bandwidth));
  };
  for (const DeviceId a : place_members_[place]) {
    for (const DeviceId b : place_members_[other]) {
      if (a != b) pay(a, b);
    }
    // Two groups with members of the same class: two devices of it.
    const auto same = std::find_if(classes_.begin(), classes_.end(), [&](const MilpDeviceClass& c) {
      return c.devices.front() == a && c.devices.size() > 1;
    });
    const auto& others = place_members_[other];
    if (same != classes_.end() && std::find(others.begin(), others.end(), a) != others.end()) {
      pay(a, same->devices[1]);
    }
  }
  return worst;
}

int HexiscaleMilpSpace::max_layers(int kind, int stage, int stages, int in_flight,
                                   int pipelines) const {
  HexiscaleCosts::Place place;
  place.first = stage == 0;
  place.last = stage + 1 == stages;
  place.in_flight = in_flight;
  place.pipelines = pipelines;
  return costs_.max_layers(sample(kind, -1), place);
}

double HexiscaleMilpSpace::most_speed() const {
  std::vector<double> fastest(machines_, 0);
  std::vector<double> devices(machines_, 0);
  for (const MilpDeviceClass& c : classes_) {
    devices[c.machine] += static_cast<double>(c.devices.size());
  }
  for (const GroupKind& kind : kinds_) {
    double& best = fastest[kind.machine];
    best = std::max(best, 1 / (kind.size * kind.per_layer.value));
  }
  double sum = 0;
  for (std::size_t m = 0; m < fastest.size(); ++m) sum += fastest[m] * devices[m];
  return sum;
}

ir::Plan HexiscaleMilpSpace::plan(const PlanChoice& choice) const {
  ir::Plan plan;
  plan.schedule = costs_.schedule();
  plan.communication.activation_transfer = ir::ActivationTransfer::leader_broadcast;
  std::vector<std::size_t> next(classes_.size(), 0);
  for (const PipelineChoice& chain : choice) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = chain.micro_batches;
    pipeline.micro_batch_size = settings_.micro_batch_size;
    int first = 0;
    for (const MilpStageChoice& stage : chain.stages) {
      std::vector<DeviceId> devices;
      for (const auto& [c, count] : kinds_[stage.kind].members) {
        const std::vector<DeviceId>& all = classes_[c].devices;
        std::size_t& used = next[c];
        ORRERY_CHECK(used + as_size(count) <= all.size(), "class {} has {} devices", c, all.size());
        for (int i = 0; i < count; ++i) devices.push_back(all[used++]);
      }
      std::sort(devices.begin(), devices.end());
      const int tensor = static_cast<int>(devices.size());
      pipeline.stages.push_back(
          stage_of_layers(input_.workload, first, stage.layers,
                          tensor_groups(devices, tensor, settings_.micro_batch_size),
                          costs_.recompute(), costs_.zero_stage()));
      first += stage.layers;
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

std::string HexiscaleMilpSpace::describe(const PlanChoice& choice) const {
  std::vector<std::string> chains;
  for (const PipelineChoice& chain : choice) {
    std::vector<std::string> stages;
    for (const MilpStageChoice& stage : chain.stages) {
      const GroupKind& kind = kinds_[stage.kind];
      const DeviceId device = classes_[kind.members.front().first].devices.front();
      stages.push_back(
          fmt::format("TP {} x {}: {}", kind.size, input_.cluster.gpu(device).name, stage.layers));
    }
    chains.push_back(
        fmt::format("[{}] x {} micro-batches", fmt::join(stages, ", "), chain.micro_batches));
  }
  return fmt::format("{} pipeline{} (layers per stage): {}", choice.size(),
                     choice.size() == 1 ? "" : "s", fmt::join(chains, "; "));
}

PlanChoice HexiscaleMilpSpace::chain(int degree) const {
  std::vector<MilpStageChoice> stages;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    int left = static_cast<int>(classes_[c].devices.size());
    while (left > 0) {
      int largest = -1;
      for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const GroupKind& kind = kinds_[k];
        if (kind.members.size() != 1 || kind.members.front().first != static_cast<int>(c) ||
            kind.size > std::min(left, degree)) {
          continue;
        }
        if (largest < 0 || kind.size > kinds_[largest].size) {
          largest = static_cast<int>(k);
        }
      }
      if (largest < 0) break;
      stages.push_back({largest, 0});
      left -= kinds_[largest].size;
    }
  }
  const auto slower = [&](const MilpStageChoice& a, const MilpStageChoice& b) {
    return kinds_[a.kind].per_layer < kinds_[b.kind].per_layer;
  };
  while (static_cast<int>(stages.size()) > layers()) {
    stages.erase(std::max_element(stages.begin(), stages.end(), slower));
  }
  const int count = static_cast<int>(stages.size());
  std::vector<StageRate> rates;
  for (int s = 0; s < count; ++s) {
    const int kind = stages[s].kind;
    const int flying =
        models::micro_batches_in_flight(costs_.schedule(), count, s, micro_batches_, 1);
    rates.push_back({kinds_[kind].per_layer,
                     s + 1 < count ? hop(kind, stages[s + 1].kind) : Seconds{},
                     max_layers(kind, s, count, flying, 1)});
  }
  const auto assigned = assign_layers_by_compute(rates, layers(), micro_batches_);
  if (stages.empty() || !assigned) return {};
  for (int s = 0; s < count; ++s) {
    stages[s].layers = (*assigned)[s];
  }
  return {{std::move(stages), micro_batches_}};
}

}  // namespace orrery::planners
