#include "traces/import_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "traces/bind.h"
#include "traces/lines.h"

namespace orrery::traces {
namespace {

/// Slots and the events of their coming and going.
class Slots {
 public:
  int take(Instant at) {
    int slot = size_;
    if (free_.empty()) {
      ++size_;
    } else {
      slot = *free_.begin();
      free_.erase(free_.begin());
    }
    // What is there at time 0 needs no event; a slot that is taken later starts out absent.
    if (at.nanoseconds > 0) add(at, ir::EventKind::join, slot);
    return slot;
  }
  void give_back(Instant at, int slot) {
    add(at, ir::EventKind::leave, slot);
    free_.insert(slot);
  }

  Trace trace(Instant end, const std::string& path, const std::string& format,
              const ImportOptions& options) && {
    Trace out;
    out.source = fmt::format("{} ({})", std::filesystem::path(path).filename().string(), format);
    out.seed = options.seed;
    out.horizon = options.horizon.count > 0 ? options.horizon : Nanoseconds{end.nanoseconds};
    for (int slot = 0; slot < size_; ++slot) {
      out.nodes.push_back(
          {fmt::format("{}{}", options.prefix, slot), options.gpu_type, options.gpus_per_node});
    }
    out.events = std::move(events_);
    std::erase_if(out.events, [&](const ir::ClusterEvent& event) {
      return event.time.nanoseconds > out.horizon.count;
    });
    sort_events(out);
    return out;
  }

 private:
  void add(Instant at, ir::EventKind kind, int slot) {
    ir::ClusterEvent event;
    event.time = at;
    event.kind = kind;
    event.scope.kind = ir::EventScope::Kind::node;
    event.scope.node = {slot};
    event.cause = "spot";
    event.sequence = static_cast<std::int64_t>(events_.size());
    events_.push_back(std::move(event));
  }

  int size_ = 0;
  std::set<int> free_;
  std::vector<ir::ClusterEvent> events_;
};

/// Instances that come and go at one instant were never there. `changes` are in order (time, line).
void drop_moments(std::vector<Change>& changes) {
  std::vector<bool> drop(changes.size());
  std::map<std::string, std::size_t> came;  // At this instant.
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (i > 0 && changes[i].time != changes[i - 1].time) came.clear();
    if (changes[i].comes) {
      came.emplace(changes[i].instance, i);
    } else if (const auto at = came.find(changes[i].instance); at != came.end()) {
      drop[i] = drop[at->second] = true;
      came.erase(at);
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (!drop[i] && kept++ != i) changes[kept - 1] = std::move(changes[i]);
  }
  changes.resize(kept);
}

}  // namespace

Trace from_changes(std::vector<Change> changes, Instant end, const std::string& path,
                   const std::string& format, const ImportOptions& options,
                   config::Diagnostics& diagnostics) {
  FileProblems problems(path, diagnostics, kMostImportProblems);
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.time, a.line) < std::tie(b.time, b.line);
  });
  drop_moments(changes);
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.time, a.comes, a.line) < std::tie(b.time, b.comes, b.line);
  });
  Slots slots;
  std::map<std::string, int> live;
  for (const Change& change : changes) {
    const auto at = live.find(change.instance);
    if (change.comes == (at != live.end())) {
      problems.add(change.line, change.column,
                   fmt::format("'{}' {}", change.instance,
                               change.comes ? "comes but is there" : "goes but is not there"));
    } else if (change.comes) {
      live.emplace(change.instance, slots.take(change.time));
    } else {
      slots.give_back(change.time, at->second);
      live.erase(at);
    }
  }
  return std::move(slots).trace(end, path, format, options);
}

Trace from_counts(const std::vector<Count>& counts, Instant end, const std::string& path,
                  const std::string& format, const ImportOptions& options,
                  config::Diagnostics& diagnostics) {
  double changes = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    changes += std::abs(counts[i].instances - (i > 0 ? counts[i - 1].instances : 0));
  }
  if (changes > static_cast<double>(kMostEvents)) {
    diagnostics.add({path, 0, 0}, fmt::format("{:.3g} instances come or go, at most {} are read",
                                              changes, kMostEvents));
    return {};
  }
  Rng rng(options.seed);
  Slots slots;
  std::vector<int> live;  // In the order in which they came.
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i + 1 < counts.size() && counts[i + 1].time == counts[i].time) continue;
    const auto wanted = static_cast<std::size_t>(counts[i].instances);
    while (live.size() < wanted) live.push_back(slots.take(counts[i].time));
    while (live.size() > wanted) {
      const auto last = static_cast<std::int64_t>(live.size()) - 1;
      const auto at =
          live.begin() + (options.order == LeaveOrder::random ? rng.integer(0, last) : last);
      slots.give_back(counts[i].time, *at);
      live.erase(at);
    }
  }
  return std::move(slots).trace(end, path, format, options);
}

}  // namespace orrery::traces
