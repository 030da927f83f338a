#include "traces/generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <queue>
#include <set>
#include <tuple>

#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "traces/bind.h"
#include "traces/generate/random.h"
#include "traces/generate/spot.h"
#include "traces/generate/victims.h"
#include "traces/layout.h"
#include "traces/rate.h"
#include "traces/statistics.h"

namespace orrery::traces {
namespace {

using ir::ClusterEvent;
using ir::EventKind;
using ir::EventScope;

ClusterEvent link_event(Instant at, EventKind kind, const std::string& link) {
  ClusterEvent event;
  event.time = at;
  event.kind = kind;
  event.scope.kind = EventScope::Kind::link;
  event.scope.link = link;
  event.cause = "degraded link";
  return event;
}

/// degrade and restore of each link, from streams forked off `root`. A link that is degraded does
/// not degrade again.
std::vector<ClusterEvent> draw_links(const DegradedLinks& links, Nanoseconds horizon,
                                     const Rng& root) {
  std::vector<ClusterEvent> events;
  for (const std::string& link : links.links) {
    const Rng stream = root.fork(name_hash("link " + link));
    Rng durations = stream.fork(1);
    Instant free;
    for (const Instant at : draw_renewals(links.per_link_day / kDay, 1, horizon, stream)) {
      if (at < free) continue;
      events.push_back(link_event(at, EventKind::degrade, link));
      events.back().factor = links.factor;
      free = at + draw_duration(links.duration, durations);
      if (free.nanoseconds > horizon.count) break;
      events.push_back(link_event(free, EventKind::restore, link));
    }
  }
  return events;
}

/// `slow` of the job at each step whose speed (at its middle, four decimals) differs from the last.
std::vector<ClusterEvent> draw_daily(const DailyVariation& daily, Nanoseconds horizon) {
  std::vector<ClusterEvent> events;
  if (daily.depth == 0) return events;
  const Nanoseconds step = to_nanoseconds(daily.step);
  double last = 1;
  for (Instant at; at.nanoseconds < horizon.count; at = at + step) {
    const double hour = (to_seconds(Nanoseconds{at.nanoseconds}) + daily.step / 2).value / 3600;
    const double phase = 2 * std::numbers::pi * (hour - daily.warmest_hour) / 24;
    const double factor = std::round((1 - daily.depth * (1 + std::cos(phase)) / 2) * 1e4) / 1e4;
    if (factor == last) continue;
    last = factor;
    ClusterEvent event;
    event.time = at;
    event.kind = EventKind::slow;
    event.scope.kind = EventScope::Kind::job;
    event.cause = "time of day";
    event.factor = factor;
    events.push_back(std::move(event));
  }
  return events;
}

/// Something that will happen, unless an earlier event cancels it.
struct Plan {
  enum class What {
    fail,
    repair,
    announce,  ///< Maintenance is announced, or starts if there is no notice.
    maintain,
    maintained,
    spot_notice,
    spot_leave,
    spot_join,
    slow,
    restore,
  };
  Instant at;
  std::int64_t order = 0;  ///< Among plans for one instant.
  What what = What::fail;
  std::size_t cause = 0;  ///< Its index.
  NodeId node;
  std::int64_t failure = 0;  ///< repair: of which failure.
  Nanoseconds notice;
  std::vector<DeviceId> devices;
  bool operator>(const Plan& other) const {
    return std::tie(at, order) > std::tie(other.at, other.order);
  }
};

class Generator {
 public:
  Generator(const TraceGenerator& settings, const GeneratorNodes& nodes, Nanoseconds horizon,
            std::uint64_t seed)
      : settings_(settings),
        failures_(settings.failures.value_or(FailureSettings{})),
        layout_(nodes.nodes),
        horizon_(horizon),
        root_(seed),
        victims_(layout_, nodes.leaf, failures_.lemons, root_.fork(name_hash("lemons"))),
        slow_(layout_.device_count()) {
    trace_.source = fmt::format("orrery trace generate: {}", settings.name);
    trace_.seed = seed;
    trace_.horizon = horizon;
    trace_.header.emplace_back("generator", config::to_flow(config::to_value(settings)));
    trace_.nodes = nodes.nodes;
  }

  Trace run() {
    if (settings_.failures) plan_failures();
    for (const std::string& type : gpu_types_of(trace_)) plan_spot(type);
    while (!queue_.empty()) {
      Plan next = queue_.top();
      queue_.pop();
      carry_out(next);
    }
    keep_absent(absent_, trace_);
    return std::move(trace_);
  }

 private:
  // ---- what will happen ----

  void plan(Plan next) {
    if (next.at.nanoseconds > horizon_.count) return;
    next.order = order_++;
    queue_.push(std::move(next));
  }
  Rng stream(const std::string& name) const { return root_.fork(name_hash(name)); }
  Rng& kept(const std::string& name) {
    return streams_.try_emplace(name, stream(name)).first->second;
  }
  /// Per second, of something counted in the table.
  double rate_of(double count) const {
    return failures_.rate * count / failures_.period.value *
           static_cast<double>(layout_.device_count()) / static_cast<double>(failures_.gpus);
  }

  void plan_failures() {
    std::vector<double> rates;
    for (const FailureCause& cause : failures_.causes) rates.push_back(rate_of(cause.count));
    rates.push_back(rate_of(failures_.maintenance.count));
    std::vector<double> expected;
    for (const double rate : rates) expected.push_back(rate * to_seconds(horizon_).value);
    // The maintenance is rounded apart: the number of unexpected failures stays the table's.
    const double maintained = expected.back();
    expected.pop_back();
    std::vector<std::int64_t> counts = round_counts(expected);
    counts.push_back(std::llround(maintained));
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const bool is_cause = i < failures_.causes.size();
      const std::string name = is_cause ? "cause " + failures_.causes[i].cause : "maintenance";
      const auto times =
          failures_.conditioned
              ? draw_uniform(counts[i], horizon_, stream(name))
              : draw_renewals(rates[i], is_cause ? failures_.shape : 1, horizon_, stream(name));
      for (const Instant at : times) {
        Plan next;
        next.at = at;
        next.what = is_cause ? Plan::What::fail : Plan::What::announce;
        next.cause = i;
        plan(std::move(next));
      }
    }
    plan_slowness();
  }

  void plan_slowness() {
    const double rate = failures_.slow.per_1000_gpu_days / 1000 / kDay *
                        static_cast<double>(layout_.device_count());
    for (const Instant at : draw_renewals(rate, 1, horizon_, stream("slow devices"))) {
      Plan next;
      next.at = at;
      next.what = Plan::What::slow;
      plan(std::move(next));
    }
    for (ClusterEvent& event : draw_links(failures_.links, horizon_, root_)) {
      emit(std::move(event));
    }
    for (ClusterEvent& event : draw_daily(failures_.daily, horizon_)) emit(std::move(event));
  }

  void plan_spot(const std::string& gpu_type) {
    const SpotType* entry = spot_type_of(settings_, gpu_type);
    if (entry == nullptr) return;
    const SpotType& type = *entry;
    std::vector<NodeId> nodes;
    for (const NodeId node : layout_.nodes()) {
      if (trace_.nodes[node.index()].gpu_type == gpu_type) nodes.push_back(node);
    }
    const SpotNodes drawn = draw_spot(type, nodes, horizon_, stream("spot " + gpu_type));
    std::map<NodeId, Instant> since;
    for (const NodeId node : drawn.absent) victims_.set_away(node, true);
    absent_.insert(absent_.end(), drawn.absent.begin(), drawn.absent.end());
    for (const SpotChange& change : drawn.changes) {
      Plan next;
      next.at = change.at;
      next.node = change.node;
      next.what = change.comes ? Plan::What::spot_join : Plan::What::spot_leave;
      plan(next);
      if (change.comes) {
        since[change.node] = change.at;
      } else if (type.notice.value > 0) {
        const auto joined = since.find(change.node);
        // A node that leaves soon after it came is warned right after it came.
        const std::int64_t earliest = joined == since.end() ? 0 : joined->second.nanoseconds + 1;
        next.at.nanoseconds =
            std::max(earliest, change.at.nanoseconds - to_nanoseconds(type.notice).count);
        next.notice = change.at - next.at;
        next.what = Plan::What::spot_notice;
        if (next.at < change.at) plan(next);
      }
    }
    add_prices(type, gpu_type, nodes);
  }

  void add_prices(const SpotType& type, const std::string& gpu_type,
                  const std::vector<NodeId>& nodes) {
    for (const SpotPrice& price : draw_prices(type, horizon_, stream("price " + gpu_type))) {
      ClusterEvent event;
      event.time = price.at;
      event.kind = EventKind::restore;
      event.cause = "price";
      event.price = price.price;
      for (const NodeId node : nodes) {
        for (const DeviceId device : layout_.devices_of(node)) {
          event.scope.devices.push_back(device);
        }
      }
      emit(std::move(event));
    }
  }

  // ---- what happens ----

  void emit(ClusterEvent event) {
    event.sequence = static_cast<std::int64_t>(trace_.events.size());
    trace_.events.push_back(std::move(event));
  }
  ClusterEvent event_of(const Plan& now, EventKind kind, std::string cause) const {
    ClusterEvent event;
    event.time = now.at;
    event.kind = kind;
    event.cause = std::move(cause);
    return event;
  }
  void emit_node(const Plan& now, EventKind kind, std::string cause) {
    ClusterEvent event = event_of(now, kind, std::move(cause));
    event.scope.kind = EventScope::Kind::node;
    event.scope.node = now.node;
    event.notice = now.notice;
    emit(std::move(event));
  }

  void carry_out(Plan& now) {
    switch (now.what) {
      case Plan::What::fail:
        return fail(now);
      case Plan::What::repair:
        return repair(now);
      case Plan::What::announce:
        return announce(now);
      case Plan::What::maintain:
        return maintain(now);
      case Plan::What::maintained:
        under_maintenance_.erase(now.node);
        if (!victims_.away(now.node)) return come_back(now, kPlannedMaintenance);
        return victims_.set_out(now.node, false);
      case Plan::What::spot_notice:
        now.what = Plan::What::spot_leave;
        if (is_in(now.node) && victims_.present(now.node) > 0) {
          emit_node(now, EventKind::notice, kSpot);
        }
        return;
      case Plan::What::spot_leave: {
        const bool leaves = is_in(now.node) && victims_.present(now.node) > 0;
        victims_.set_away(now.node, true);
        if (leaves) emit_node(now, EventKind::leave, kSpot);
        return;
      }
      case Plan::What::spot_join:
        victims_.set_away(now.node, false);
        if (!under_maintenance_.contains(now.node)) come_back(now, kSpot);
        return;
      case Plan::What::slow:
        return slow_down(now);
      case Plan::What::restore: {
        slow_[now.devices.front()] = false;
        ClusterEvent event = event_of(now, EventKind::restore, kSlow);
        event.scope.devices = now.devices;
        return emit(std::move(event));
      }
    }
  }

  bool is_in(NodeId node) const {
    return !victims_.away(node) && !under_maintenance_.contains(node);
  }

  /// The whole node joins: what was broken in it is new or repaired.
  void come_back(const Plan& now, const char* cause) {
    victims_.set_out(now.node, false);
    emit_node(now, EventKind::join, cause);
  }

  void fail(const Plan& now) {
    const FailureCause& cause = failures_.causes[now.cause];
    ClusterEvent event = event_of(now, EventKind::fail, cause.cause);
    if (cause.detection) event.detection = to_nanoseconds(*cause.detection);
    Rng& rng = kept("victims of " + cause.cause);
    if (cause.scope == FailureScope::job) {
      event.scope.kind = EventScope::Kind::job;
      if (victims_.any()) emit(std::move(event));
      return;
    }
    const std::vector<DeviceId> hit = victims_.draw(cause.scope, cause.nodes, rng);
    if (hit.empty()) return;
    event.scope = scope_of(hit);
    emit(std::move(event));
    Plan next;
    next.failure = ++last_failure_;
    for (const DeviceId device : hit) victims_.fail(device, next.failure);
    next.what = Plan::What::repair;
    next.at = now.at + draw_duration(*cause.repair, kept("repair of " + cause.cause));
    next.cause = now.cause;
    next.devices = hit;
    plan(std::move(next));
  }

  /// Repairs the devices that have not been replaced with their node meanwhile.
  void repair(const Plan& now) {
    std::vector<DeviceId> mended;
    for (const DeviceId device : now.devices) {
      if (victims_.failure_of(device) != now.failure || !is_in(layout_.node_of(device))) continue;
      victims_.mend(device);
      mended.push_back(device);
    }
    if (mended.empty()) return;
    ClusterEvent event = event_of(now, EventKind::repair, failures_.causes[now.cause].cause);
    event.scope = scope_of(mended);
    emit(std::move(event));
  }

  /// A node, if they are all its devices.
  EventScope scope_of(const std::vector<DeviceId>& devices) const {
    EventScope scope;
    const NodeId node = layout_.node_of(devices.front());
    if (static_cast<int>(devices.size()) == layout_.gpus(node) &&
        layout_.node_of(devices.back()) == node && layout_.gpus(node) > 1) {
      scope.kind = EventScope::Kind::node;
      scope.node = node;
    } else {
      scope.devices = devices;
    }
    return scope;
  }

  void announce(const Plan& now) {
    const auto hit = victims_.draw(FailureScope::node, 1, kept("victims of maintenance"));
    if (hit.empty()) return;
    Plan next = now;
    next.node = layout_.node_of(hit.front());
    next.what = Plan::What::maintain;
    next.notice = to_nanoseconds(failures_.maintenance.notice);
    if (next.notice.count > 0) emit_node(next, EventKind::notice, kPlannedMaintenance);
    next.at = now.at + next.notice;
    next.notice = {};
    plan(std::move(next));
  }

  void maintain(const Plan& now) {
    if (!is_in(now.node) || victims_.present(now.node) == 0) return;
    emit_node(now, EventKind::leave, kPlannedMaintenance);
    under_maintenance_.insert(now.node);
    victims_.set_out(now.node, true);
    Plan next = now;
    next.what = Plan::What::maintained;
    next.at = now.at + draw_duration(failures_.maintenance.duration, kept("maintenance time"));
    plan(std::move(next));
  }

  void slow_down(const Plan& now) {
    const auto hit = victims_.draw(FailureScope::gpu, 1, kept("victims of slowness"));
    const Nanoseconds time = draw_duration(failures_.slow.duration, kept("slow time"));
    if (hit.empty() || slow_[hit.front()]) return;
    slow_[hit.front()] = true;
    ClusterEvent event = event_of(now, EventKind::slow, kSlow);
    event.scope.devices = hit;
    event.factor = failures_.slow.factor;
    if (failures_.slow.detection) event.detection = to_nanoseconds(*failures_.slow.detection);
    emit(std::move(event));
    Plan next;
    next.what = Plan::What::restore;
    next.at = now.at + time;
    next.devices = hit;
    plan(std::move(next));
  }

  static constexpr const char* kSpot = "spot";
  static constexpr const char* kSlow = "slow device";

  const TraceGenerator& settings_;
  const FailureSettings failures_;
  const TraceLayout layout_;
  Nanoseconds horizon_;
  Rng root_;
  Victims victims_;
  IdVector<DeviceId, bool> slow_;
  std::set<NodeId> under_maintenance_;
  std::map<std::string, Rng> streams_;
  std::priority_queue<Plan, std::vector<Plan>, std::greater<>> queue_;
  std::int64_t order_ = 0;
  std::int64_t last_failure_ = 0;
  Trace trace_;
  std::vector<NodeId> absent_;  ///< Spot nodes, at time 0.
};

/// A bound of the mean number of events, with those that find no victim. An event that lists so
/// many devices takes the memory of two.
constexpr double kDevicesPerEvent = 50;

double most_failures(const FailureSettings& failures, double devices, Seconds horizon) {
  double count = failures.maintenance.count * 3;  // notice, leave, join
  for (const FailureCause& cause : failures.causes) count += cause.count * 2;
  const double scale =
      failures.rate * (horizon / failures.period) * devices / static_cast<double>(failures.gpus);
  const double days = horizon.value / kDay;
  double events =
      count * scale + failures.slow.per_1000_gpu_days / 1000 * devices * days * 2 +
      failures.links.per_link_day * static_cast<double>(failures.links.links.size()) * days * 2;
  if (failures.daily.depth > 0) events += horizon / failures.daily.step;
  return events;
}

double most_events(const TraceGenerator& generator, const GeneratorNodes& nodes, Seconds horizon) {
  struct Count {
    double nodes = 0;
    double devices = 0;
  };
  Count all;
  std::map<std::string, Count> by_type;
  for (const TraceNode& node : nodes.nodes) {
    for (Count* count : {&all, &by_type[node.gpu_type]}) {
      count->nodes += 1;
      count->devices += node.gpus;
    }
  }
  double events = 0;
  if (generator.failures) events += most_failures(*generator.failures, all.devices, horizon);
  for (const auto& [gpu_type, count] : by_type) {
    const SpotType* type = spot_type_of(generator, gpu_type);
    if (type == nullptr) continue;
    const double factor =
        type->by_hour.empty() ? 1 : *std::max_element(type->by_hour.begin(), type->by_hour.end());
    const double hazard = factor * type->leaves_per_hour / kHour;
    events += count.nodes * (3 * horizon.value * hazard / (1 + hazard * type->away.value) + 1);
    if (type->price && type->price_sigma > 0) {
      events += (horizon / type->price_step + 1) * (1 + count.devices / kDevicesPerEvent);
    }
  }
  return events;
}

}  // namespace

GeneratorNodes nodes_of_cluster(const models::Cluster& cluster) {
  GeneratorNodes out{nodes_of(cluster), {}};
  for (const models::Node& node : cluster.nodes) out.leaf.push_back(node.leaf);
  return out;
}

GeneratorNodes equal_nodes(int count, int gpus, const std::string& gpu_type) {
  GeneratorNodes out;
  for (int i = 0; i < count; ++i) {
    out.nodes.push_back({fmt::format("node{}", i), gpu_type, gpus});
    out.leaf.push_back(0);
  }
  return out;
}

std::vector<std::string> find_problems(const TraceGenerator& generator, const GeneratorNodes& nodes,
                                       Nanoseconds horizon) {
  std::vector<std::string> problems;
  if (nodes.nodes.empty()) problems.emplace_back("no nodes");
  for (const SpotType& spot : generator.spot) {
    if (spot.gpu_type == "*") continue;
    if (std::none_of(nodes.nodes.begin(), nodes.nodes.end(),
                     [&](const TraceNode& node) { return node.gpu_type == spot.gpu_type; })) {
      problems.push_back(fmt::format("no node has the GPU type '{}' of `spot`", spot.gpu_type));
    }
  }
  const double events = most_events(generator, nodes, to_seconds(horizon));
  if (events > static_cast<double>(kMostEvents)) {
    problems.push_back(fmt::format("the trace would have some {:.3g} events, at most {} are kept",
                                   events, kMostEvents));
  }
  return problems;
}

Trace generate(const TraceGenerator& generator, const GeneratorNodes& nodes, Nanoseconds horizon,
               std::uint64_t seed) {
  ORRERY_CHECK(horizon.count > 0, "a horizon of {} ns", horizon.count);
  const auto problems = find_problems(generator, nodes, horizon);
  ORRERY_CHECK(problems.empty(), "{}", problems.front());
  return Generator(generator, nodes, horizon, seed).run();
}

}  // namespace orrery::traces
