#include "planners/metis/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "models/base/ids.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

constexpr std::int64_t kLeaders = 2;  ///< One part in this many of the budget goes to leaders.

/// "2 to 5, 7".
std::string ranges(const std::set<int>& numbers) {
  std::vector<std::string> parts;
  for (auto i = numbers.begin(); i != numbers.end();) {
    const int first = *i;
    int last = first;
    while (++i != numbers.end() && *i == last + 1) ++last;
    parts.push_back(first == last ? std::to_string(first) : fmt::format("{} to {}", first, last));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<std::vector<int>> metis_type_orders(const MetisProblem& problem) {
  std::vector<int> types;
  for (const DeviceId device : problem.input.devices) {
    const int type = problem.input.cluster.device(device).gpu_type;
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  std::vector<int> order(types.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> orders;
  do {
    orders.push_back(order);
  } while (orders.size() < kMostMetisOrders && std::next_permutation(order.begin(), order.end()));
  const std::vector<int> base = orders[as_size(problem.settings.type_order) % orders.size()];
  for (std::vector<int>& each : orders) {
    for (int& k : each) k = types[base[k]];
  }
  return orders;
}

void start_path(MetisPath& path, const std::vector<int>& sizes, int costed, int batch) {
  path.sizes = &sizes;
  path.costed = costed;
  path.first.resize(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), path.first.begin(), 0);
  path.batch = batch;
  path.step.assign(sizes.size(), 0);
}

MetisSearch::MetisSearch(const MetisProblem& problem, MetisProgress& progress)
    : problem_(problem), settings_(problem.settings), progress_(progress) {
  std::vector<std::vector<int>> orders = metis_type_orders(problem);
  if (settings_.type_orders == MetisTypeOrders::first) orders.resize(1);
  const int most = std::min(static_cast<int>(problem.input.devices.size()), problem.tables.layers);
  for (std::vector<int>& types : orders) {
    Cells& cells = all_.emplace_back();
    cells.types = std::move(types);
    for (int stages = 1; stages <= most; ++stages) {
      if (settings_.stages > 0 && stages != settings_.stages) continue;
      cells.cells.emplace_back().stages = stages;
    }
  }
}

DeviceGroups MetisSearch::groups(int stages) const {
  return {stages, now_->placement.size(), settings_.variance, settings_.max_permute_length};
}

void MetisSearch::run() {
  if (settings_.full()) note_full_size();
  // Plans of the algorithm make the bounds of the full search sharp.
  if (settings_.bounds || !settings_.full()) search_leaders();
  if (settings_.full()) {
    exploring_ = true;
    for (Cells& cells : all_) {
      for (Cell& cell : cells.cells) cell.leaders = 0;  // Leaders, too, once more.
    }
  }
  search_all();
  note_unsearched();
  if (!settings_.bounds) {
    progress_.report().notes.push_back(fmt::format(
        "without bounds: {} of device groups and micro-batches were looked at", followed_));
  }
}

void MetisSearch::note_full_size() {
  MetisFullSize size;
  for (const Cells& cells : all_) {
    open(cells.types);
    for (const Cell& cell : cells.cells) {
      now_->full.count(cell.stages, now_->placement.size(), size);
      if (canceled(problem_.input)) return;
    }
  }
  progress_.report().notes.push_back(size.in_words());
}

/// The first permutation of every choice of sizes: good plans early make the bounds sharp.
void MetisSearch::search_leaders() {
  const std::int64_t budget = progress_.budget();
  std::int64_t left = budget / kLeaders;
  auto cells = static_cast<std::int64_t>(all_.size() * all_.front().cells.size());
  std::vector<int> sizes;
  for (Cells& sequence : all_) {
    open(sequence.types);
    for (Cell& cell : sequence.cells) {
      const std::int64_t before = progress_.work();
      const std::int64_t most = before + std::max<std::int64_t>(0, (left + cells - 1) / cells);
      --cells;
      DeviceGroups leaders = groups(cell.stages);
      while (budget == 0 || progress_.work() < most) {
        if (progress_.stop()) return;
        if (!leaders.next_leader(sizes)) break;
        ++cell.leaders;
        for (int batch = 0; batch < static_cast<int>(problem_.batches.size()); ++batch) {
          progress_.charge(1);
          examine(sizes, batch);
        }
      }
      left -= progress_.work() - before;
    }
  }
}

/// Shares what is left of the budget evenly over sequences and numbers of stages; what one does not
/// use goes to the others.
void MetisSearch::search_all() {
  const auto unfinished = [](const Cells& sequence) {
    return std::count_if(sequence.cells.begin(), sequence.cells.end(),
                         [](const Cell& cell) { return !cell.finished; });
  };
  for (;;) {
    std::int64_t open_sequences = std::count_if(
        all_.begin(), all_.end(), [&](const Cells& each) { return unfinished(each) > 0; });
    if (open_sequences == 0) return;
    for (Cells& sequence : all_) {
      std::int64_t cells = unfinished(sequence);
      if (cells == 0) continue;
      if (progress_.stop()) return;
      open(sequence.types);
      const std::int64_t budget = progress_.budget();
      std::int64_t left = budget == 0 ? -1 : (budget - progress_.work()) / open_sequences--;
      for (Cell& cell : sequence.cells) {
        if (cell.finished) continue;
        if (progress_.stop()) return;
        const std::int64_t before = progress_.work();
        search_cell(cell, left < 0 ? -1 : std::max<std::int64_t>(1, left / cells));
        --cells;
        if (left >= 0) left = std::max<std::int64_t>(0, left - (progress_.work() - before));
      }
    }
  }
}

/// Goes on where the cell was left, for `most` more units of work (negative: to the end).
void MetisSearch::search_cell(Cell& cell, std::int64_t most) {
  DeviceGroups partitions = groups(cell.stages);
  std::int64_t partition = 0;
  bool some = partitions.next_leader(sizes_);
  for (; some && partition < cell.partition; ++partition) some = partitions.next_leader(sizes_);
  for (; some; some = partitions.next_leader(sizes_)) {
    MetisLattice lattice(partitions);
    if (cell.batch == 0 && !progress_.spend(most, 1)) return;
    for (; cell.batch < static_cast<int>(problem_.batches.size()); ++cell.batch) {
      if (!now_->bounds.possible(lattice, cell.batch)) continue;
      // Weighing two states takes about as long as looking at an arrangement.
      if (!progress_.spend(most, 1 + std::ssize(lattice.rank) / 2)) return;
      if (now_->bounds.weigh(lattice, cell.batch)) {
        order_.clear();
        sizes_.clear();
        resume_ = 0;
        if (!descend(lattice, cell, 0, 0, cell.partition < cell.leaders, most)) return;
      }
      cell.next.clear();
    }
    cell.batch = 0;
    ++cell.partition;
  }
  cell.finished = true;
}

/// Examines the permutations below a state that have room for all layers, from Cell::next on.
/// False when the budget ended it.
bool MetisSearch::descend(const MetisLattice& lattice, Cell& cell, int state, double layers,
                          bool skip_first, std::int64_t& most) {
  const std::size_t depth = order_.size();
  if (state + 1 == static_cast<int>(lattice.rank.size())) {
    if (resume_ == cell.next.size()) cell.next.clear();
    if (skip_first && order_ == lattice.first) return true;
    if (!progress_.spend(most, 1)) return false;
    examine(sizes_, cell.batch);
    return true;
  }
  const bool resuming = !cell.next.empty() && resume_ == depth;
  const std::size_t begin = resuming ? as_size(cell.next[depth]) : 0;
  for (std::size_t g = begin; g < lattice.groups.size(); ++g) {
    if (lattice.placed(g, state) == lattice.counts[g]) continue;
    const int next = state + lattice.strides[g];
    const double taken = lattice.room[as_size(state) * lattice.groups.size() + g];
    const bool again = resuming && g == begin && !cell.next.empty();
    const bool viable = taken >= 0 && lattice.suffix[next] >= 0 &&
                        layers + taken + lattice.suffix[next] >= problem_.tables.layers - 2;
    if (!viable) {
      if (again) cell.next.clear();
      continue;
    }
    if (again) resume_ = depth + 1;
    order_.push_back(static_cast<int>(g));
    sizes_.insert(sizes_.end(), lattice.groups[g].begin(), lattice.groups[g].end());
    const bool ended = !descend(lattice, cell, next, layers + taken, skip_first, most);
    if (ended && cell.next.empty()) cell.next = order_;
    if (ended) return false;
    sizes_.resize(sizes_.size() - lattice.groups[g].size());
    order_.pop_back();
  }
  return true;
}

void MetisSearch::examine(const std::vector<int>& sizes, int batch) {
  start_path(path_, sizes, static_cast<int>(sizes.size()), batch);
  ++followed_;
  if (exploring_) {
    now_->full.explore(path_);
  } else {
    now_->paths.follow(path_);
  }
}

void MetisSearch::note_unsearched() {
  std::set<int> stages;
  for (const Cells& sequence : all_) {
    for (const Cell& cell : sequence.cells) {
      if (!cell.finished) stages.insert(cell.stages);
    }
  }
  if (stages.empty()) return;
  progress_.report().notes.push_back(fmt::format(
      "the search ended after {} nodes; not all device groups were tried for {} stages (in some of "
      "the {} orders of the GPU types)",
      progress_.work(), ranges(stages), all_.size()));
}

}  // namespace orrery::planners
