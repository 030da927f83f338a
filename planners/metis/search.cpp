#include "planners/metis/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

constexpr std::int64_t kLeaders = 2;  ///< One part in so many of the budget goes to leaders.
/// Orders of GPU types that are searched: all of up to seven types.
constexpr std::size_t kMostOrders = 5040;

/// "2 to 5, 7".
std::string ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    parts.push_back(i == j ? std::to_string(numbers[i])
                           : fmt::format("{} to {}", numbers[i], numbers[j]));
    i = j + 1;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

MetisSearch::MetisSearch(const PlannerInput& input, const MetisSettings& settings,
                         const MetisTables& tables, ir::ScheduleKind schedule,
                         ir::Recompute recompute, std::size_t wanted, std::int64_t budget,
                         std::int64_t patience, Ranking& ranking, SearchReport& report)
    : input_(input),
      settings_(settings),
      tables_(tables),
      schedule_(schedule),
      recompute_(recompute),
      wanted_(wanted),
      budget_(budget),
      patience_(patience),
      ranking_(ranking),
      report_(report),
      batches_(divisors(input.job.global_batch)),
      balancer_(tables.demand, !settings.as_published()) {
  std::reverse(batches_.begin(), batches_.end());
  for (std::size_t l = 1; l + 1 < tables.demand.size(); ++l) inner_share_ += tables.demand[l];
  bytes_before_.assign(1, 0.0);
  for (const double bytes : tables.parameter_bytes) {
    bytes_before_.push_back(bytes_before_.back() + bytes);
  }
}

/// Permutations of the GPU types, the chosen one first.
std::vector<MetisSearch::Sequence> MetisSearch::sequences() const {
  std::vector<int> types;
  for (const DeviceId device : input_.devices) {
    const int type = input_.cluster.device(device).gpu_type;
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  std::vector<int> order(types.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> orders;
  do {
    orders.push_back(order);
  } while (orders.size() < kMostOrders && std::next_permutation(order.begin(), order.end()));
  const std::vector<int> base = orders[at(settings_.type_order) % orders.size()];
  const bool fixed = !settings_.as_published();
  if (fixed && settings_.type_orders == MetisTypeOrders::first)
    orders.resize(1);  // The identity, seen from `base`.
  const int most = std::min(static_cast<int>(input_.devices.size()), tables_.layers);
  std::vector<Sequence> all;
  for (const std::vector<int>& each : orders) {
    Sequence sequence;
    for (const int k : each) sequence.types.push_back(types[at(base[at(k)])]);
    for (int stages = 1; stages <= most; ++stages) {
      if (fixed && settings_.stages > 0 && stages != settings_.stages) continue;
      sequence.cells.push_back({stages, 0, 0, 0, {}, false});
    }
    all.push_back(std::move(sequence));
  }
  return all;
}

void MetisSearch::open(const std::vector<int>& types) {
  full_times_.clear();
  full_reach_.clear();
  stages_.reset();
  placement_ = std::make_unique<MetisPlacement>(input_, settings_.as_published(), types);
  stages_ =
      std::make_unique<MetisStages>(input_, settings_, tables_, *placement_, batches_, recompute_);
}

bool MetisSearch::stop() {
  const bool hopeful = patience_ == 0 || report_.work < patience_ || !best_.empty();
  if (!canceled(input_) && hopeful && (budget_ == 0 || report_.work < budget_)) return false;
  report_.complete = false;
  return true;
}

void MetisSearch::run() {
  std::vector<Sequence> all = sequences();
  if (settings_.as_published()) {
    search_as_published(all);
  } else {
    if (settings_.full()) count_full(all);
    // Plans of the algorithm make the bounds of the full search sharp.
    if (settings_.bounds || !settings_.full()) search_leaders(all);
    if (settings_.full()) start_exploring(all);
    search_all(all);
    note_unsearched(all);
    if (!settings_.bounds) {
      report_.notes.push_back(fmt::format(
          "without bounds: {} of device groups and micro-batches were looked at", followed_));
    }
  }
  if (all.size() == kMostOrders && all.front().types.size() > 7) {
    report_.complete = false;
    report_.notes.push_back(fmt::format("only {} orders of the {} GPU types were searched",
                                        kMostOrders, all.front().types.size()));
  }
  if (broken_ > 0) {
    report_.notes.push_back(fmt::format(
        "the public code stops with an error at {} intra-stage plans; they were left out",
        broken_));
  }
  if (inexpressible_ > 0) {
    report_.notes.push_back(fmt::format(
        "{} plans of the public code lose layers or break the job's limits; they were left out",
        inexpressible_));
  }
}

/// From here on all degrees and divisions, of leaders too.
void MetisSearch::start_exploring(std::vector<Sequence>& all) {
  exploring_ = true;
  for (Sequence& sequence : all) {
    for (Cell& cell : sequence.cells) cell.leaders = 0;
  }
}

/// The first permutation of every choice of sizes: good plans early make the bounds sharp.
void MetisSearch::search_leaders(std::vector<Sequence>& all) {
  std::int64_t left = budget_ / kLeaders;
  auto cells = static_cast<std::int64_t>(all.size() * all.front().cells.size());
  std::vector<int> sizes;
  for (Sequence& sequence : all) {
    open(sequence.types);
    for (Cell& cell : sequence.cells) {
      const std::int64_t before = report_.work;
      const std::int64_t most = before + std::max<std::int64_t>(0, (left + cells - 1) / cells);
      --cells;
      DeviceGroups groups(cell.stages, placement_->size(), settings_.variance,
                          settings_.max_permute_length);
      while (budget_ == 0 || report_.work < most) {
        if (stop()) return;
        if (!groups.next_leader(sizes)) break;
        ++cell.leaders;
        examine(sizes, cell.stages);
      }
      left -= report_.work - before;
    }
  }
}

/// Shares what is left of the budget evenly over sequences and numbers of stages; what one does not
/// use goes to the others.
void MetisSearch::search_all(std::vector<Sequence>& all) {
  const auto unfinished = [](const Sequence& sequence) {
    return std::count_if(sequence.cells.begin(), sequence.cells.end(),
                         [](const Cell& cell) { return !cell.finished; });
  };
  for (;;) {
    std::int64_t open_sequences = std::count_if(
        all.begin(), all.end(), [&](const Sequence& each) { return unfinished(each) > 0; });
    if (open_sequences == 0) return;
    for (Sequence& sequence : all) {
      std::int64_t cells = unfinished(sequence);
      if (cells == 0) continue;
      if (stop()) return;
      open(sequence.types);
      std::int64_t left = budget_ == 0 ? -1 : (budget_ - report_.work) / open_sequences--;
      for (Cell& cell : sequence.cells) {
        if (cell.finished) continue;
        if (stop()) return;
        const std::int64_t before = report_.work;
        search_cell(cell, left < 0 ? -1 : std::max<std::int64_t>(1, left / cells));
        --cells;
        if (left >= 0) left = std::max<std::int64_t>(0, left - (report_.work - before));
      }
    }
  }
}

/// Goes on where the cell was left, for `most` more units of work (negative: to the end).
void MetisSearch::search_cell(Cell& cell, std::int64_t most) {
  DeviceGroups groups(cell.stages, placement_->size(), settings_.variance,
                      settings_.max_permute_length);
  std::int64_t partition = 0;
  bool some = groups.next_leader(sizes_);
  for (; some && partition < cell.partition; ++partition) some = groups.next_leader(sizes_);
  for (; some; some = groups.next_leader(sizes_)) {
    Lattice lattice = make_lattice(groups);
    if (cell.batch == 0 && !spend(most, 1)) return;
    for (; cell.batch < static_cast<int>(batches_.size()); ++cell.batch) {
      if (!possible(lattice, cell.batch)) continue;
      // Weighing two states takes about as long as looking at an arrangement.
      if (!spend(most, 1 + std::ssize(lattice.rank) / 2)) return;
      if (weigh(lattice, cell.batch)) {
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

/// Takes units of work, if there are any left; of the last ones it may take fewer.
bool MetisSearch::spend(std::int64_t& most, std::int64_t units) {
  if (most == 0 || stop()) return false;
  most = most < 0 ? most : std::max<std::int64_t>(0, most - units);
  charge(units);
  return true;
}

/// Counts work that is done whether or not the budget has room for all of it.
void MetisSearch::charge(std::int64_t units) {
  report_.work += units;
  if (budget_ > 0) report_.work = std::min(report_.work, budget_);
}
bool MetisSearch::publish_groups(int stages, int costed) {
  DeviceGroups groups(stages, placement_->size(), settings_.variance, settings_.max_permute_length);
  std::vector<int> sizes;
  bool any = false;
  while (groups.next(sizes)) {
    if (stop()) return true;
    any = true;
    examine(sizes, costed);
  }
  return any;
}

/// In the order of the public code. From the second sequence of types on it first takes groups for
/// the first possible number of stages above one while it counts only one stage.
void MetisSearch::search_as_published(const std::vector<Sequence>& all) {
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (stop()) return;
    open(all[s].types);
    const int most = static_cast<int>(all[s].cells.size());
    if (s == 0) {
      if (!publish_groups(1, 1)) {
        halted_ = fmt::format(
            "the public code stops: no power of two makes one group of all {} "
            "devices",
            placement_->size());
        return;
      }
    } else {
      int stages = 2;
      while (stages <= most && !publish_groups(stages, 1)) ++stages;
    }
    for (int stages = 2; stages <= most; ++stages) publish_groups(stages, stages);
  }
  if (!report_.complete) {
    report_.notes.push_back("the rest of the published order of the search was left out");
  }
}

void MetisSearch::examine(const std::vector<int>& sizes, int costed) {
  for (int batch = 0; batch < static_cast<int>(batches_.size()); ++batch) {
    charge(1);
    examine(sizes, costed, batch);
  }
}

void MetisSearch::examine(const std::vector<int>& sizes, int costed, int batch) {
  Path& path = path_;
  path.sizes = &sizes;
  path.costed = costed;
  path.first.resize(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), path.first.begin(), 0);
  path.batch = batch;
  path.step.assign(sizes.size(), 0);
  ++followed_;
  if (!exploring_) return follow(path);
  explore(path, 0);
}
void MetisSearch::note_unsearched(const std::vector<Sequence>& all) {
  std::map<int, int> cut;
  for (const Sequence& sequence : all) {
    for (const Cell& cell : sequence.cells) {
      if (!cell.finished) ++cut[cell.stages];
    }
  }
  if (cut.empty()) return;
  std::vector<int> stages;
  for (const auto& each : cut) stages.push_back(each.first);
  report_.notes.push_back(fmt::format(
      "the search ended after {} nodes; not all device groups were tried for {} stages (in some of "
      "the {} orders of the GPU types)",
      report_.work, ranges(stages), all.size()));
}

}  // namespace orrery::planners
