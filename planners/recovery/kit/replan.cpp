#include "planners/recovery/kit/replan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "models/base/bytes.h"
#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "models/config/document.h"
#include "planners/catalog.h"
#include "planners/recovery/kit/node_classes.h"

namespace orrery::planners {
namespace {

IdVector<DeviceId, bool> flags(const std::vector<DeviceId>& devices,
                               const models::Cluster& cluster) {
  IdVector<DeviceId, bool> out(cluster.size(), false);
  for (const DeviceId device : devices) out[device] = true;
  return out;
}

/// Link domains and PCIe switches that a position belongs to are the same.
bool same_links(const models::Node& node, int a, int b) {
  const auto alike = [&](const auto& sets) {
    return std::all_of(sets.begin(), sets.end(), [&](const auto& set) {
      const auto has = [&](int position) {
        return std::find(set.members.begin(), set.members.end(), position) != set.members.end();
      };
      return has(a) == has(b);
    });
  };
  return node.gpu_types[a] == node.gpu_types[b] && alike(node.domains) && alike(node.pcie);
}

/// Replaces what is gone by spares.
class SpareFinder {
 public:
  SpareFinder(const ir::Plan& plan, const models::Cluster& cluster,
              const std::vector<DeviceId>& live)
      : cluster_(cluster),
        live_(flags(live, cluster)),
        used_(flags(ir::devices_of(plan), cluster)),
        works_(flags(ir::working_devices(plan), cluster)),
        to_(cluster.size(), -1),
        first_(first_devices(cluster)) {
    for (const DeviceId device : used_.ids()) {
      if (used_[device]) to_[device.index()] = device.value;
    }
  }

  bool replace(NodeId node) { return replace_inside(node) || replace_node(node); }
  /// Nodes with a device that the plan needs and that is gone, ascending.
  std::vector<NodeId> broken() const {
    std::vector<NodeId> out;
    for (const models::Device& device : cluster_.devices) {
      if (!works_[device.id] || live_[device.id]) continue;
      if (out.empty() || out.back() != device.node) out.push_back(device.node);
    }
    return out;
  }
  const DeviceRenaming& renaming() const { return to_; }

 private:
  std::vector<DeviceId> devices_of(NodeId node) const {
    std::vector<DeviceId> out;
    const int first = first_[node.index()];
    const auto count = static_cast<int>(cluster_.node(node).gpu_types.size());
    for (int i = 0; i < count; ++i) out.push_back({first + i});
    return out;
  }

  /// All of the node's gone devices by its own idle ones, or none.
  bool replace_inside(NodeId node) {
    const std::vector<DeviceId> devices = devices_of(node);
    std::vector<std::pair<DeviceId, DeviceId>> swaps;
    std::vector<DeviceId> spare;
    for (const DeviceId device : devices) {
      if (!used_[device] && live_[device]) spare.push_back(device);
    }
    for (const DeviceId device : devices) {
      if (!works_[device] || live_[device]) continue;
      const auto found = std::find_if(spare.begin(), spare.end(), [&](DeviceId other) {
        return same_links(cluster_.node(node), cluster_.device(device).position,
                          cluster_.device(other).position);
      });
      if (found == spare.end()) return false;
      swaps.emplace_back(device, *found);
      spare.erase(found);
    }
    for (const auto& [device, other] : swaps) take(device, other);
    return true;
  }

  bool replace_node(NodeId node) {
    const std::vector<DeviceId> devices = devices_of(node);
    for (std::size_t n = 0; n < cluster_.nodes.size(); ++n) {
      const NodeId other{static_cast<std::int32_t>(n)};
      if (other == node || !same_kind(cluster_.node(node), cluster_.nodes[n])) continue;
      const std::vector<DeviceId> spares = devices_of(other);
      const bool free = std::all_of(spares.begin(), spares.end(),
                                    [&](DeviceId spare) { return live_[spare] && !used_[spare]; });
      if (!free) continue;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        if (used_[devices[i]]) take(devices[i], spares[i]);
      }
      return true;
    }
    return false;
  }

  void take(DeviceId device, DeviceId other) {
    to_[device.index()] = other.value;
    used_[other] = true;
  }

  const models::Cluster& cluster_;
  IdVector<DeviceId, bool> live_;
  IdVector<DeviceId, bool> used_;   ///< By the plan, or by a replacement.
  IdVector<DeviceId, bool> works_;  ///< What must live for the plan to run.
  DeviceRenaming to_;
  std::vector<int> first_;  ///< Device of each node.
};

}  // namespace

std::vector<DeviceId> whole_nodes(const models::Cluster& cluster,
                                  const std::vector<DeviceId>& live) {
  IdVector<NodeId, std::size_t> count(cluster.nodes.size(), 0);
  for (const DeviceId device : live) ++count[cluster.device(device).node];
  std::vector<DeviceId> out;
  for (const DeviceId device : live) {
    const NodeId node = cluster.device(device).node;
    if (count[node] == cluster.node(node).gpu_types.size()) out.push_back(device);
  }
  return out;
}

std::vector<DeviceId> usable(const models::JobState& state, double slowest) {
  std::vector<DeviceId> out;
  std::size_t leaving = 0;
  std::size_t slow = 0;
  for (const DeviceId device : state.live) {
    while (leaving < state.leaving.size() && state.leaving[leaving].device < device) ++leaving;
    while (slow < state.slow.size() && state.slow[slow].device < device) ++slow;
    const bool leaves = leaving < state.leaving.size() && state.leaving[leaving].device == device;
    const bool is_slow = slow < state.slow.size() && state.slow[slow].device == device &&
                         state.slow[slow].factor < slowest;
    if (!leaves && !is_slow) out.push_back(device);
  }
  return out;
}

bool all_live(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& live) {
  // Both mostly ascend: after the first device the search goes on from where the last one was.
  auto from = live.end();
  DeviceId last;
  return std::all_of(devices.begin(), devices.end(), [&](DeviceId device) {
    from = device < last || !last.valid()
               ? std::lower_bound(live.begin(), live.end(), device)
               : std::find_if(from, live.end(), [&](DeviceId d) { return d >= device; });
    last = device;
    return from != live.end() && *from == device;
  });
}

bool runs_on(const ir::Plan& plan, const std::vector<DeviceId>& live) {
  return all_live(ir::working_devices(plan), live);
}

std::optional<ir::Plan> with_spares(const ir::Plan& plan, const models::Cluster& cluster,
                                    const std::vector<DeviceId>& live) {
  SpareFinder finder(plan, cluster, live);
  for (const NodeId node : finder.broken()) {
    if (!finder.replace(node)) return std::nullopt;
  }
  return renamed(plan, finder.renaming());
}

models::PlanPointer home_plan(const PolicyInput& input, const std::vector<DeviceId>& live) {
  if (!input.plan) return nullptr;
  auto home = with_spares(*input.plan, input.cluster, live);
  return home ? std::make_shared<const ir::Plan>(std::move(*home)) : nullptr;
}

void describe_planner(config::Visitor& v, std::string& planner, const char* doc) {
  v.optional("planner", planner, doc);
  if (!v.reading() || find_planner(planner) != nullptr) return;
  v.problem("planner",
            fmt::format("'{}' is none of {}", planner, fmt::join(planner_names(), ", ")));
}

bool from_scalar(const std::string& text, PlannerOptions& out, std::string& error) {
  out.values.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0) {
      error = fmt::format("expected name=value,name=value, not '{}'", text);
      return false;
    }
    out.values.emplace_back(one.substr(0, equals), one.substr(equals + 1));
    at = end + 1;
  }
  return true;
}

std::string to_scalar(const PlannerOptions& options) {
  std::string text;
  for (const auto& [name, value] : options.values) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  }
  return text;
}

void describe_planner(config::Visitor& v, std::string& planner, PlannerOptions& options,
                      const char* doc) {
  describe_planner(v, planner, doc);
  v.optional("planner_options", options,
             "Its options: name=value,name=value; empty: its defaults.");
  if (!v.reading() || !v.good()) return;
  const config::Diagnostics found = find_planner(planner)->check(options.values);
  for (const config::Problem& problem : found.problems()) {
    v.problem("planner_options", to_string(problem));
  }
}

struct Replanner::Memory {
  Memory(const models::Cluster& cluster, const PlannerEntry& entry, const Options& options)
      : planner(entry.make(options)), name(entry.name), draws(entry.draws), classes(cluster) {
    for (const OptionInfo& info : entry.options()) settings[info.name] = info.default_value;
    for (const auto& [option, value] : options) settings[option] = value;
  }
  using Answer = FoundPlan;
  std::unique_ptr<Planner> planner;
  std::string name;
  bool draws;
  std::map<std::string, std::string> settings;  ///< Defaults included.
  NodeClasses classes;
  std::map<std::vector<DeviceId>, Answer> canonical;  ///< By canonical set.
  std::map<std::vector<DeviceId>, Answer> given;      ///< By the set that was asked for.
};

Replanner::Replanner(const PolicyInput& input, const std::string& planner, const Options& options)
    : input_(input) {
  const PlannerEntry* entry = find_planner(planner);
  ORRERY_CHECK(entry != nullptr, "no planner {}", planner);
  memory_ = std::make_shared<Memory>(input.cluster, *entry, options);
}

/// Asks the planner, or who remembers its answers.
FoundPlan Replanner::search(const std::vector<DeviceId>& devices) const {
  const auto ask = [&]() -> FoundPlan {
    const PlannerInput asked{
        input_.cluster,   input_.topology, input_.workload, input_.job, input_.profile,
        input_.evaluator, devices,         input_.seed,     0,          nullptr};
    PlannerResult result = memory_->planner->plan(asked);
    if (auto* plan = std::get_if<ir::Plan>(&result.outcome)) {
      return std::make_shared<const ir::Plan>(std::move(*plan));
    }
    return std::get<models::Infeasible>(std::move(result.outcome));
  };
  // What a class of Python answers may change from call to call.
  if (input_.known_searches == nullptr || names_python(memory_->name)) return ask();
  ByteWriter question;
  question.put(std::string_view(memory_->name));
  question.put(memory_->settings.size());
  for (const auto& [option, value] : memory_->settings) {
    question.put(std::string_view(option));
    question.put(std::string_view(value));
  }
  question.put(std::string_view(config::dump(input_.job)));
  if (memory_->draws) question.put(input_.seed);
  question.put(input_.cluster.size());
  question.put(devices.size());
  for (const DeviceId device : devices) question.put(device.value);
  return input_.known_searches->plan(question.bytes(), ask);
}

FoundPlan Replanner::plan_for(const std::vector<DeviceId>& devices) const {
  if (devices.empty()) return models::Infeasible{"live devices", "none is left"};
  const auto known = memory_->given.find(devices);
  if (known != memory_->given.end()) return known->second;
  NodeClasses::Canonical form = memory_->classes.canonical(devices);
  auto found = memory_->canonical.find(form.devices);
  if (found == memory_->canonical.end()) {
    if (input_.searches != nullptr) ++*input_.searches;
    found = memory_->canonical.emplace(form.devices, search(form.devices)).first;
  }
  Memory::Answer answer = found->second;
  if (const auto* plan = std::get_if<models::PlanPointer>(&answer);
      plan != nullptr && form.devices != devices) {
    answer = std::make_shared<const ir::Plan>(renamed(**plan, form.back));
  }
  memory_->given.emplace(devices, answer);
  return answer;
}

}  // namespace orrery::planners
