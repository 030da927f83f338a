#include "traces/statistics.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "models/config/visitor.h"
#include "traces/csv.h"
#include "traces/layout.h"
#include "traces/names.h"
#include "traces/presence.h"

namespace orrery::traces {
namespace {

constexpr double kProbabilities[] = {0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1};

double hours(Nanoseconds time) { return to_seconds(time).value / kHour; }
double ratio(double a, std::int64_t b) { return b > 0 ? a / static_cast<double>(b) : 0; }

}  // namespace

/// Counts the nodes of one GPU type (or of all) that are there, and for how long.
class AvailabilityCounter {
 public:
  explicit AvailabilityCounter(std::string gpu_type) { out_.gpu_type = std::move(gpu_type); }

  void add_node(int gpus) {
    ++out_.nodes;
    out_.devices += gpus;
    ++nodes_;
    devices_ += gpus;
  }
  /// Adds the time since the last call to the counts that held.
  void advance(Instant now) {
    const Nanoseconds span = now - last_;
    last_ = now;
    if (span.count == 0) return;
    node_time_[nodes_] += span;
    device_time_[devices_] += span;
  }
  void change(int nodes, int devices) {
    nodes_ += nodes;
    devices_ += devices;
    changed_ |= nodes != 0 || devices != 0;
  }
  /// Nodes that went and came altogether at one instant.
  void close_instant(std::int64_t gone, std::int64_t came) {
    out_.departures += gone;
    out_.arrivals += came;
    if (gone > 0) ++out_.bursts;
    if (came > 0) ++out_.join_bursts;
    out_.max_burst = std::max(out_.max_burst, static_cast<double>(gone));
  }
  bool take_changed() { return std::exchange(changed_, false); }
  std::int64_t nodes() const { return nodes_; }
  std::int64_t devices() const { return devices_; }

  Availability finish() {
    out_.node_hours = integral(node_time_);
    out_.gpu_hours = integral(device_time_);
    const double total = hours(Nanoseconds{last_.nanoseconds});
    const double node_total = total * static_cast<double>(out_.nodes);
    if (total > 0) {
      out_.mean_nodes = out_.node_hours / node_total;
      out_.mean_devices = out_.gpu_hours / (total * static_cast<double>(out_.devices));
    }
    for (const double p : kProbabilities) {
      out_.quantiles.push_back(
          {p, quantile(node_time_, p) / static_cast<double>(std::max<std::int64_t>(1, out_.nodes)),
           quantile(device_time_, p) /
               static_cast<double>(std::max<std::int64_t>(1, out_.devices))});
    }
    out_.mean_burst = ratio(static_cast<double>(out_.departures), out_.bursts);
    out_.mean_join_burst = ratio(static_cast<double>(out_.arrivals), out_.join_bursts);
    out_.lifetime_hours = ratio(out_.node_hours, out_.departures);
    out_.away_hours = ratio(node_total - out_.node_hours, out_.arrivals);
    out_.leaves_per_node_hour =
        out_.node_hours > 0 ? static_cast<double>(out_.departures) / out_.node_hours : 0;
    return std::move(out_);
  }

 private:
  using Times = std::map<std::int64_t, Nanoseconds>;  ///< For how long each count held.

  static double integral(const Times& times) {
    double sum = 0;
    for (const auto& [count, time] : times) sum += static_cast<double>(count) * hours(time);
    return sum;
  }
  /// Least count below or at which the share `p` of the time lies.
  static double quantile(const Times& times, double p) {
    std::int64_t total = 0;
    for (const auto& [count, time] : times) total += time.count;
    std::int64_t sum = 0;
    for (const auto& [count, time] : times) {
      sum += time.count;
      if (static_cast<double>(sum) >= p * static_cast<double>(total)) {
        return static_cast<double>(count);
      }
    }
    return times.empty() ? 0 : static_cast<double>(times.rbegin()->first);
  }

  Availability out_;
  std::int64_t nodes_ = 0;
  std::int64_t devices_ = 0;
  bool changed_ = false;
  Instant last_;
  Times node_time_;
  Times device_time_;
};

class StatisticsCollector::Parts {
 public:
  Parts(const Trace& header, const std::vector<NodeId>& absent, OnAvailability on_change)
      : layout_(header.nodes), presence_(layout_), all_(""), on_change_(std::move(on_change)) {
    out_.source = header.source;
    out_.seed = header.seed;
    const std::vector<std::string> types = gpu_types_of(header);
    for (const std::string& type : types) groups_.emplace_back(type);
    for (const TraceNode& node : header.nodes) {
      type_of_.push_back(std::find(types.begin(), types.end(), node.gpu_type) - types.begin());
      groups_[type_of_.back()].add_node(node.gpus);
      all_.add_node(node.gpus);
    }
    for (const NodeId node : absent) {
      presence_.set_absent(node);
      move(node, -1, -layout_.gpus(node));
    }
    noticed_.resize(layout_.device_count());
    gone_.resize(groups_.size() + 1);
    came_.resize(groups_.size() + 1);
    for (std::size_t g = 0; g < groups_.size(); ++g) show(g);
  }

  void add(const ir::ClusterEvent& event) {
    if (event.time != now_) close_instant();
    advance(event.time);
    ++out_.events;
    ++counts_[{event.kind, event.cause}];
    if (event.kind == ir::EventKind::fail) ++out_.failures;
    follow(event);
  }

  TraceStatistics finish(Nanoseconds horizon) {
    close_instant();
    advance({horizon.count});
    for (std::size_t g = 0; g < groups_.size(); ++g) show(g);
    out_.horizon_hours = hours(horizon);
    out_.unexpected += out_.failures;
    for (const auto& [key, count] : counts_) {
      out_.counts.push_back({kind_name(key.first), key.second, count});
    }
    std::stable_sort(out_.counts.begin(), out_.counts.end(),
                     [](const CauseCount& a, const CauseCount& b) {
                       return a.kind == b.kind && a.events > b.events;
                     });
    out_.all = all_.finish();
    for (AvailabilityCounter& group : groups_) out_.types.push_back(group.finish());
    out_.mtbf_hours = ratio(out_.horizon_hours, out_.unexpected);
    out_.mttf_1024_gpus_hours = ratio(out_.all.gpu_hours / 1024, out_.unexpected);
    if (out_.all.node_hours > 0) {
      out_.per_1000_node_days =
          static_cast<double>(out_.unexpected) / (out_.all.node_hours / 24) * 1000;
    }
    return std::move(out_);
  }

 private:
  void advance(Instant to) {
    now_ = to;
    for (AvailabilityCounter& group : groups_) group.advance(to);
    all_.advance(to);
  }
  void move(NodeId node, int nodes, int devices) {
    groups_[type_of_[node]].change(nodes, devices);
    all_.change(nodes, devices);
  }
  void show(std::size_t group) {
    groups_[group].take_changed();
    if (on_change_) {
      on_change_({now_, group, groups_[group].nodes(), groups_[group].devices()});
    }
  }

  void follow(const ir::ClusterEvent& event) {
    const std::vector<DeviceId> devices = layout_.devices_of(event.scope);
    if (event.kind == ir::EventKind::leave) {
      left_ = true;
      // What has gone before (it failed) needs no notice.
      for (const DeviceId device : devices) {
        unannounced_ |= presence_.present(device) && !noticed_[device];
      }
    }
    std::vector<NodeId> nodes;
    for (const DeviceId device : devices) {
      const NodeId node = layout_.node_of(device);
      if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
    }
    std::vector<int> before;
    for (const NodeId node : nodes) before.push_back(presence_.present(node));
    std::vector<Contradiction> ignored;  // Readers have reported them.
    presence_.apply(event, ignored);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const int after = presence_.present(nodes[i]);
      const int alive = (after > 0 ? 1 : 0) - (before[i] > 0 ? 1 : 0);
      move(nodes[i], alive, after - before[i]);
      std::vector<std::int64_t>& moved = alive < 0 ? gone_ : came_;
      moved[type_of_[nodes[i]]] += std::abs(alive);
      moved.back() += std::abs(alive);
    }
    for (const DeviceId device : devices) {
      if (event.kind == ir::EventKind::notice) noticed_[device] = true;
      if (event.kind == ir::EventKind::leave || event.kind == ir::EventKind::join ||
          event.kind == ir::EventKind::fail) {
        noticed_[device] = false;
      }
    }
  }

  void close_instant() {
    if (left_) ++(unannounced_ ? out_.unexpected : out_.announced);
    left_ = unannounced_ = false;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].close_instant(gone_[g], came_[g]);
      if (groups_[g].take_changed()) show(g);
    }
    all_.close_instant(gone_.back(), came_.back());
    std::fill(gone_.begin(), gone_.end(), 0);
    std::fill(came_.begin(), came_.end(), 0);
  }

  const TraceLayout layout_;
  Presence presence_;
  TraceStatistics out_;
  AvailabilityCounter all_;
  std::vector<AvailabilityCounter> groups_;
  IdVector<NodeId, std::size_t> type_of_;
  std::map<std::pair<ir::EventKind, std::string>, std::int64_t> counts_;
  IdVector<DeviceId, bool> noticed_;
  std::vector<std::int64_t> gone_;  ///< At this instant, by type; the last one: of all.
  std::vector<std::int64_t> came_;
  bool left_ = false;
  bool unannounced_ = false;
  Instant now_;
  OnAvailability on_change_;
};

StatisticsCollector::StatisticsCollector(const Trace& header, const std::vector<NodeId>& absent,
                                         OnAvailability on_change)
    : parts_(std::make_unique<Parts>(header, absent, std::move(on_change))) {}
StatisticsCollector::~StatisticsCollector() = default;
void StatisticsCollector::add(const ir::ClusterEvent& event) { parts_->add(event); }
TraceStatistics StatisticsCollector::finish(Nanoseconds horizon) { return parts_->finish(horizon); }

std::vector<std::string> gpu_types_of(const Trace& trace) {
  std::vector<std::string> types;
  std::set<std::string> known;
  for (const TraceNode& node : trace.nodes) {
    if (known.insert(node.gpu_type).second) types.push_back(node.gpu_type);
  }
  return types;
}

TraceStatistics statistics_of(const Trace& trace, const OnAvailability& on_change) {
  StatisticsCollector collector(trace, absent_at_start(trace), on_change);
  for (const ir::ClusterEvent& event : trace.events) collector.add(event);
  return collector.finish(trace.horizon);
}

TraceStatistics statistics_of_file(const std::string& path,
                                   const std::function<void(const Trace& header)>& on_header,
                                   const OnAvailability& on_change,
                                   config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    const Trace trace = read_trace(path, diagnostics);
    if (diagnostics.problems().size() > before) return {};
    on_header(trace);
    return statistics_of(trace, on_change);
  }
  AbsentNodes absent;
  scan_trace(
      path, [&](const Trace& header) { absent = AbsentNodes(header.nodes); },
      [&](const ir::ClusterEvent& event) { absent.add(event); }, diagnostics);
  if (diagnostics.problems().size() > before) return {};
  std::optional<StatisticsCollector> collector;
  const Trace trace = scan_trace(
      path,
      [&](const Trace& header) {
        on_header(header);
        collector.emplace(header, absent.list(), on_change);
      },
      [&](const ir::ClusterEvent& event) { collector->add(event); }, diagnostics);
  if (diagnostics.problems().size() > before || !collector) return {};
  return collector->finish(trace.horizon);
}

void describe(config::Visitor& v, CauseCount& count) {
  v.required("kind", count.kind, "");
  v.required("cause", count.cause, "");
  v.required("events", count.events, "");
}

void describe(config::Visitor& v, Quantile& quantile) {
  v.required("probability", quantile.probability, "");
  v.required("nodes", quantile.nodes, "");
  v.required("devices", quantile.devices, "");
}

void describe(config::Visitor& v, Availability& a) {
  v.required("gpu_type", a.gpu_type, "");
  v.required("nodes", a.nodes, "");
  v.required("devices", a.devices, "");
  v.required("mean_nodes", a.mean_nodes, "");
  v.required("mean_devices", a.mean_devices, "");
  v.required("quantiles", a.quantiles, "");
  v.required("node_hours", a.node_hours, "");
  v.required("gpu_hours", a.gpu_hours, "");
  v.required("departures", a.departures, "");
  v.required("arrivals", a.arrivals, "");
  v.required("bursts", a.bursts, "");
  v.required("join_bursts", a.join_bursts, "");
  v.required("mean_burst", a.mean_burst, "");
  v.required("max_burst", a.max_burst, "");
  v.required("mean_join_burst", a.mean_join_burst, "");
  v.required("lifetime_hours", a.lifetime_hours, "");
  v.required("away_hours", a.away_hours, "");
  v.required("leaves_per_node_hour", a.leaves_per_node_hour, "");
}

void describe(config::Visitor& v, TraceStatistics& s) {
  v.title("Trace statistics");
  v.required("source", s.source, "");
  v.required("horizon_hours", s.horizon_hours, "");
  v.required("events", s.events, "");
  v.required("counts", s.counts, "");
  v.required("failures", s.failures, "");
  v.required("unexpected", s.unexpected, "");
  v.required("announced", s.announced, "");
  v.required("mtbf_hours", s.mtbf_hours, "");
  v.required("mttf_1024_gpus_hours", s.mttf_1024_gpus_hours, "");
  v.required("per_1000_node_days", s.per_1000_node_days, "");
  v.required("all", s.all, "");
  v.required("types", s.types, "");
}

}  // namespace orrery::traces
