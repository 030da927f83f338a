#include "traces/import/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/rng.h"
#include "models/base/text.h"
#include "models/config/units.h"

namespace orrery::traces {
namespace {

/// Slots, and the events of their arrivals and departures.
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

  Trace trace(Instant end, const ImportOptions& options) && {
    Trace out;
    out.seed = options.seed;
    out.horizon = options.horizon.count > 0 ? options.horizon : Nanoseconds{end.nanoseconds};
    for (int slot = 0; slot < size_; ++slot) {
      out.nodes.push_back(
          {fmt::format("{}{}", options.prefix, slot), options.gpu_type, options.gpus_per_node});
    }
    out.events = std::move(events_);
    const std::vector<NodeId> absent = absent_at_start(out);
    std::erase_if(out.events, [&](const ir::ClusterEvent& event) {
      return event.time.nanoseconds > out.horizon.count;
    });
    keep_absent(absent, out);
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

void for_each_line(
    const ImportInput& input, const char* nothing,
    const std::function<void(const std::string& text, std::int64_t line, FileProblems&)>& read) {
  LineReader lines(input.path, input.diagnostics, input.options.most_lines);
  FileProblems problems(input.path, input.diagnostics, kMostImportProblems);
  std::string text;
  bool any = false;
  while (!problems.too_many() && lines.next(text)) {
    if (trimmed(text).empty()) continue;
    any = true;
    read(text, lines.number(), problems);
  }
  if (!any && !problems.any() && !lines.failed()) problems.add(1, 1, nothing);
}

std::optional<std::int64_t> ForeignRow::integer(std::size_t cell, std::int64_t most) const {
  config::TextError error;
  const auto number = config::parse_integer(cells[cell].text, 0, most, error);
  if (!number) add_problem(cell, error.what, error.hint);
  return number;
}

void for_each_row(const ImportInput& input, std::size_t columns, const char* description,
                  const char* nothing, const std::function<void(const ForeignRow&)>& read) {
  std::vector<config::CsvCell> cells;
  for_each_line(
      input, nothing, [&](const std::string& text, std::int64_t line, FileProblems& problems) {
        if (!split_cells(text, line, cells, problems)) return;
        if (cells.size() == columns) return read({cells, line, problems});
        problems.add(line, 1, fmt::format("{} cells instead of {}", cells.size(), columns),
                     description);
      });
}

Trace from_changes(std::vector<Change> changes, Instant end, const ImportInput& input) {
  FileProblems problems(input.path, input.diagnostics, kMostImportProblems);
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
  return std::move(slots).trace(end, input.options);
}

Trace from_counts(const std::vector<Count>& counts, Instant end, const ImportInput& input) {
  double changes = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    changes += std::abs(counts[i].instances - (i > 0 ? counts[i - 1].instances : 0));
  }
  if (changes > static_cast<double>(kMostEvents)) {
    input.diagnostics.add(
        {input.path, 0, 0},
        fmt::format("{:.3g} instances come or go, at most {} are read", changes, kMostEvents));
    return {};
  }
  Rng rng(input.options.seed);
  Slots slots;
  std::vector<int> live;  // In the order in which they came.
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i + 1 < counts.size() && counts[i + 1].time == counts[i].time) continue;
    const std::size_t wanted = counts[i].instances;
    while (live.size() < wanted) live.push_back(slots.take(counts[i].time));
    while (live.size() > wanted) {
      const auto last = static_cast<std::int64_t>(live.size()) - 1;
      const auto at =
          live.begin() + (input.options.order == LeaveOrder::random ? rng.integer(0, last) : last);
      slots.give_back(counts[i].time, *at);
      live.erase(at);
    }
  }
  return std::move(slots).trace(end, input.options);
}

}  // namespace orrery::traces
