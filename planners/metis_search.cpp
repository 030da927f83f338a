#include "planners/metis_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "models/cost/memory.h"
#include "planners/kit/integers.h"
#include "planners/plan_parts.h"

namespace orrery::planners {
namespace {

constexpr int kAttempts = 3;          ///< To divide layers. [public code]
constexpr double kRounding = 1e-9;    ///< Relative; bounds and costs add up in different orders.
constexpr std::int64_t kLeaders = 2;  ///< One part in so many of the budget goes to leaders.

/// Orders of GPU types that are searched: all of up to seven types.
constexpr std::size_t kMostOrders = 5040;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

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
      balancer_(tables.demand, !settings.as_published) {
  std::reverse(batches_.begin(), batches_.end());
  for (std::size_t l = 1; l + 1 < tables.demand.size(); ++l) inner_share_ += tables.demand[l];
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
  const int most = std::min(static_cast<int>(input_.devices.size()), tables_.layers);
  std::vector<Sequence> all;
  for (const std::vector<int>& each : orders) {
    Sequence sequence;
    for (const int k : each) sequence.types.push_back(types[at(base[at(k)])]);
    for (int stages = 1; stages <= most; ++stages)
      sequence.cells.push_back({stages, 0, 0, 0, {}, false});
    all.push_back(std::move(sequence));
  }
  return all;
}

void MetisSearch::open(const std::vector<int>& types) {
  stages_.reset();
  placement_ = std::make_unique<MetisPlacement>(input_, settings_.as_published, types);
  stages_ =
      std::make_unique<MetisStages>(input_, settings_, tables_, *placement_, batches_, recompute_);
}

bool MetisSearch::stop() {
  const bool hopeful = patience_ == 0 || report_.work < patience_ || !best_.empty();
  if (!cancelled(input_) && hopeful && (budget_ == 0 || report_.work < budget_)) return false;
  report_.complete = false;
  return true;
}

void MetisSearch::run() {
  std::vector<Sequence> all = sequences();
  if (settings_.as_published) {
    search_as_published(all);
  } else {
    search_leaders(all);
    search_all(all);
    note_unsearched(all);
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

/// The first permutation of every choice of sizes: good plans early make the bounds sharp.
void MetisSearch::search_leaders(std::vector<Sequence>& all) {
  std::int64_t left = budget_ / kLeaders;
  auto cells = static_cast<std::int64_t>(all.size() * all.front().cells.size());
  std::vector<int> sizes;
  for (Sequence& sequence : all) {
    open(sequence.types);
    for (Cell& cell : sequence.cells) {
      const std::int64_t most = budget_ == 0 ? -1 : (left + cells - 1) / cells;
      --cells;
      DeviceGroups groups(cell.stages, placement_->size(), settings_.variance,
                          settings_.max_permute_length);
      while (cell.leaders != most) {
        if (stop()) return;
        if (!groups.next_leader(sizes)) break;
        ++cell.leaders;
        examine(sizes, cell.stages);
      }
      left -= cell.leaders;
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
      // Weighing a state takes about a sixteenth of the time of an arrangement.
      if (!spend(most, 1 + std::ssize(lattice.rank) / 16)) return;
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
  report_.work += units;
  if (budget_ > 0 && report_.work > budget_) {
    report_.work = budget_;
    return !stop();
  }
  return true;
}

/// Each size has a degree that gives every replica a number of samples that was measured.
bool MetisSearch::possible(const Lattice& lattice, int batch) const {
  const std::int64_t samples = input_.job.global_batch / batches_[at(batch)];
  return std::all_of(lattice.groups.begin(), lattice.groups.end(), [&](const auto& group) {
    return std::all_of(group.begin(), group.end(), [&](int size) {
      for (int step = 0; step < stages_->steps(size); ++step) {
        const std::int64_t each = samples / (size >> step);
        if (each >= 1 && each <= tables_.max_samples()) return true;
      }
      return false;
    });
  });
}

MetisSearch::Lattice MetisSearch::make_lattice(const DeviceGroups& groups) {
  Lattice lattice;
  for (const std::vector<int>& each : groups.permuted()) {
    if (lattice.groups.empty() || lattice.groups.back() != each) {
      lattice.groups.push_back(each);
      lattice.counts.push_back(0);
    }
    ++lattice.counts.back();
  }
  int states = 1;
  for (std::size_t g = 0; g < lattice.groups.size(); ++g) {
    lattice.strides.push_back(states);
    states *= lattice.counts[g] + 1;
    lattice.stages += lattice.counts[g] * static_cast<int>(lattice.groups[g].size());
    // The first permutation is non-increasing.
    lattice.first.insert(lattice.first.begin(), at(lattice.counts[g]), static_cast<int>(g));
  }
  for (int state = 0; state < states; ++state) {
    int rank = 0, stage = 0;
    for (std::size_t g = 0; g < lattice.groups.size(); ++g) {
      const std::vector<int>& group = lattice.groups[g];
      rank += lattice.placed(g, state) * std::accumulate(group.begin(), group.end(), 0);
      stage += lattice.placed(g, state) * static_cast<int>(group.size());
    }
    lattice.rank.push_back(rank);
    lattice.stage.push_back(stage);
  }
  return lattice;
}

/// Milliseconds that the slowest stage may add beyond what every permutation costs at least;
/// negative if that is too much already.
double MetisSearch::slack(const Lattice& lattice, int batch) {
  double share = kNever, first = kNever, last = kNever, sync = kNever;
  for (std::size_t state = 0; state < lattice.rank.size(); ++state) {
    for (std::size_t g = 0; g < lattice.groups.size(); ++g) {
      if (lattice.placed(g, static_cast<int>(state)) == lattice.counts[g]) continue;
      int rank = lattice.rank[state];
      for (const int size : lattice.groups[g]) {
        const StageBound& bound = stages_->bound(rank, size, batch, 0);
        share = std::min(share, bound.per_share);
        first = std::min(first, bound.first);
        last = std::min(last, bound.last);
        sync = std::min(sync, bound.sync);
        rank += size;
      }
    }
  }
  if (first == kNever) return -1;
  if (best_.size() < wanted_) return kNever;
  const double known =
      (sync + tables_.batch_generator_ms) * static_cast<double>(batches_[at(batch)]) +
      (tables_.layers > 2 ? share * inner_share_ + first + last : 0);
  return (*best_.rbegin() * (1 + kRounding) - known) * (1 + kRounding);
}

/// Fills `room` and `suffix` for a number of micro-batches; false when no permutation can be among
/// the best.
bool MetisSearch::weigh(Lattice& lattice, int batch) {
  const std::size_t states = lattice.rank.size(), kinds = lattice.groups.size();
  if (!settings_.bounds) {
    lattice.room.assign(states * kinds, tables_.layers);
    lattice.suffix.assign(states, tables_.layers);
    return true;
  }
  const double most = slack(lattice, batch);
  if (most < 0) return false;
  lattice.room.assign(states * kinds, -1.0);
  lattice.suffix.assign(states, -1.0);
  lattice.suffix.back() = 0;
  for (std::size_t state = states - 1; state-- > 0;) {
    for (std::size_t g = 0; g < kinds; ++g) {
      if (lattice.placed(g, static_cast<int>(state)) == lattice.counts[g]) continue;
      const double later = lattice.suffix[state + at(lattice.strides[g])];
      double layers = 0;
      int rank = lattice.rank[state], stage = lattice.stage[state];
      for (const int size : lattice.groups[g]) {
        // Without any choice there is no plan.
        const bool none = stages_->bound(rank, size, batch, 0).first == kNever;
        layers = none || layers < 0 ? -1
                                    : layers + room(rank, size, batch, 0,
                                                    in_flight(lattice.stages, stage, batch), most)
                                                   .first;
        rank += size;
        ++stage;
      }
      lattice.room[state * kinds + g] = layers;
      if (layers < 0 || later < 0) continue;
      lattice.suffix[state] = std::max(lattice.suffix[state], layers + later);
    }
  }
  return lattice.suffix.front() >= tables_.layers - 2;
}

/// Examines the permutations below a state that have room for all layers, from Cell::next on.
/// False when the budget ended it.
bool MetisSearch::descend(const Lattice& lattice, Cell& cell, int state, double layers,
                          bool skip_first, std::int64_t& most) {
  const std::size_t depth = order_.size();
  if (state + 1 == static_cast<int>(lattice.rank.size())) {
    if (resume_ == cell.next.size()) cell.next.clear();
    if (skip_first && order_ == lattice.first) return true;
    if (!spend(most, 1)) return false;
    examine(sizes_, cell.stages, cell.batch);
    return true;
  }
  const bool resuming = !cell.next.empty() && resume_ == depth;
  const std::size_t begin = resuming ? at(cell.next[depth]) : 0;
  for (std::size_t g = begin; g < lattice.groups.size(); ++g) {
    if (lattice.placed(g, state) == lattice.counts[g]) continue;
    const int next = state + lattice.strides[g];
    const double taken = lattice.room[at(state) * lattice.groups.size() + g];
    const bool again = resuming && g == begin && !cell.next.empty();
    const bool viable = taken >= 0 && lattice.suffix[at(next)] >= 0 &&
                        layers + taken + lattice.suffix[at(next)] >= tables_.layers - 2;
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
  ++report_.work;
  for (int batch = 0; batch < static_cast<int>(batches_.size()); ++batch) {
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
  follow(path);
}

const MetisStageChoice& MetisSearch::choice(const Path& path, int stage) {
  return stages_->choice(path.first[at(stage)], (*path.sizes)[at(stage)], path.batch,
                         path.step[at(stage)]);
}

/// From pure data parallelism until the layers can be divided at the first attempt.
void MetisSearch::follow(Path& path) {
  const int stages = static_cast<int>(path.sizes->size());
  std::vector<double> memory;
  std::vector<int> cuts;
  if (hopeless(path)) return;
  do {
    bool valid = true, broken = false;
    for (int s = 0; s < stages && valid; ++s) {
      const MetisStageChoice& each = choice(path, s);
      valid = each.valid;
      broken = broken || each.broken;
    }
    if (!valid) continue;
    if (hopeless(path)) return;
    ++report_.plans_examined;
    if (broken) {
      ++broken_;
      continue;
    }
    int attempts = 0;
    if (!divide_layers(path, memory, cuts, attempts)) {
      memory.clear();
      continue;
    }
    offer(path, cuts);
    if (attempts == 1) return;
  } while (advance(path, memory) == Next::moved);
}

/// One stage's tensor-parallel degree is doubled: where least memory is left, or before that is
/// known where the data-parallel degree is largest.
MetisSearch::Next MetisSearch::advance(Path& path, const std::vector<double>& memory) const {
  int best = -1;
  double least = kNever;
  for (int s = 0; s < static_cast<int>(path.step.size()); ++s) {
    const int data = (*path.sizes)[at(s)] >> path.step[at(s)];
    if (data == 1) continue;
    const double key = memory.empty() ? 1.0 / data : memory[at(s)];
    if (best >= 0 && !(key < least)) continue;
    best = s;
    least = key;
  }
  if (best < 0) return Next::end;
  ++path.step[at(best)];
  // Degrees only grow: a stage beyond what was measured stays there.
  return path.step[at(best)] < stages_->steps((*path.sizes)[at(best)]) ? Next::moved : Next::end;
}

/// No plan further along the path can be among the best. Stage times are at least those of the best
/// choices that are left, and the slowest stage at least what lets all layers find a place.
bool MetisSearch::hopeless(const Path& path) {
  if (!settings_.bounds || settings_.as_published) return false;
  const int stages = static_cast<int>(path.sizes->size());
  double share = kNever, first = kNever, last = kNever, hops = 0, sync = 0;
  for (int s = 0; s < stages; ++s) {
    const int size = (*path.sizes)[at(s)];
    const StageBound& bound = stages_->bound(path.first[at(s)], size, path.batch, path.step[at(s)]);
    if (bound.first == kNever) return true;
    share = std::min(share, bound.per_share);
    first = std::min(first, bound.first);
    last = std::min(last, bound.last);
    if (s + 1 < stages) {
      hops += bound.samples *
              stages_->hop_per_sample(path.first[at(s)], size, (*path.sizes)[at(s + 1)]);
    } else {
      sync = bound.sync;
    }
  }
  if (best_.size() < wanted_) return false;
  const double best = *best_.rbegin() * (1 + kRounding);
  const auto batches = static_cast<double>(batches_[at(path.batch)]);
  double known = hops + (sync + tables_.batch_generator_ms) * batches;
  const int inner = tables_.layers - 2;
  if (inner <= 0) return known > best;
  known += share * inner_share_ + first + last;
  if (known > best) return true;
  if (!has_room(path, (best - known) * (1 + kRounding))) return true;
  // Not all layers find room in the fastest stages: the sum of stage times is larger.
  const double fuller = known - share * inner_share_ + least_sum();
  return fuller > known && (fuller > best || !has_room(path, (best - fuller) * (1 + kRounding)));
}

/// All inner layers find room where no stage adds more than `slack`.
bool MetisSearch::has_room(const Path& path, double slack) {
  const int inner = tables_.layers - 2;
  const int stages = static_cast<int>(path.sizes->size());
  double layers = 0;
  rooms_.clear();
  for (int s = 0; s < stages; ++s) {
    const int size = (*path.sizes)[at(s)];
    const int first = path.first[at(s)];
    const auto [here, fastest] =
        room(first, size, path.batch, path.step[at(s)], in_flight(stages, s, path.batch), slack);
    layers += here;
    rooms_.emplace_back(fastest, here);
  }
  return layers >= inner;
}

/// Least sum of stage times when all inner layers are in the stages that has_room() found room in.
double MetisSearch::least_sum() {
  std::sort(rooms_.begin(), rooms_.end());
  double left = tables_.layers - 2, sum = 0;
  for (const auto& [time, most] : rooms_) {
    const double here = std::min(left, most);
    sum += here * time;
    left -= here;
    if (left <= 0) break;
  }
  return sum;
}

/// Micro-batches whose activations the stage holds, at least.
int MetisSearch::in_flight(int stages, int stage, int batch) const {
  if (schedule_ != ir::ScheduleKind::one_f_one_b) return 1;
  return static_cast<int>(std::min<std::int64_t>(batches_[at(batch)], stages - stage));
}

/// Most inner layers of a stage that adds at most `slack` milliseconds (by the slowest stage's
/// further micro-batches, the gradients and the optimizer, each of which counts where it is
/// largest) and that memory allows; with the least time of a layer.
std::pair<double, double> MetisSearch::room(int first, int size, int batch, int step, int in_flight,
                                            double slack) {
  const double enough = tables_.layers;
  double most = 0, fastest = kNever;
  for (const LayerBound& bound : stages_->layer_bounds(first, size, batch).subspan(at(step))) {
    if (bound.time == kNever) continue;
    fastest = std::min(fastest, bound.time);
    double layers = std::floor(std::min(enough, slack * bound.rate));
    const double each = bound.states_mb + in_flight * bound.kept_mb;
    const double have = bound.have_mb * (1 + kRounding);
    if (layers * each > have) layers = std::floor(have / each);
    most = std::max(most, layers);
  }
  return {most, fastest};
}

/// 1 / time of the whole model on the stage. Without layer balancing every replica counts as an
/// average one of the cluster. [Metis, Figure 6: the baseline]
double MetisSearch::speed(const MetisStageChoice& choice) const {
  if (settings_.balance_layers) return 1.0 / choice.total_ms;
  double sum = 0;
  int count = 0;
  for (const int type : placement_->type) {
    double time = 0;
    for (const int part : binary_parts(choice.nominal)) {
      const MetisEntry* entry = tables_.find(type, choice.tensor, part);
      time += entry == nullptr ? kNever : entry->total_ms;
    }
    if (time == kNever) continue;
    sum += time;
    ++count;
  }
  return count == 0 ? 1.0 / choice.total_ms : count / sum;
}

void MetisSearch::count_memory(const Path& path, const std::vector<int>& cuts,
                               std::vector<double>& have, std::vector<double>& need) {
  const int stages = static_cast<int>(path.sizes->size());
  have.clear();
  need.clear();
  for (int s = 0; s < stages; ++s) {
    const MetisStageChoice& each = choice(path, s);
    const int begin = cuts[at(s)], end = cuts[at(s + 1)];
    if (!stages_->device_rule()) {
      have.push_back(stages_->group_memory(path.first[at(s)], (*path.sizes)[at(s)]));
      need.push_back(stages_->layer_memory(each, begin, end));
    } else if (begin == end) {
      have.push_back(1);
      need.push_back(0.001);
    } else {
      const int in_flight = models::micro_batches_in_flight(
          schedule_, stages, s, static_cast<int>(batches_[at(path.batch)]), 1);
      const auto [has, needs] = stages_->device_memory(each, begin, end, in_flight);
      have.push_back(has);
      need.push_back(needs);
    }
  }
}

/// False when memory does not allow it after all attempts. `memory`: what is left in each stage.
bool MetisSearch::divide_layers(const Path& path, std::vector<double>& memory,
                                std::vector<int>& cuts, int& attempts) {
  std::vector<double> capacity, have, need;
  double sum = 0;
  for (int s = 0; s < static_cast<int>(path.sizes->size()); ++s) {
    capacity.push_back(speed(choice(path, s)));
    sum += capacity.back();
  }
  for (double& each : capacity) each /= sum;
  for (attempts = 1; attempts <= kAttempts; ++attempts) {
    const auto divided = balancer_.divide(capacity);
    if (!divided) return false;
    cuts = *divided;
    count_memory(path, cuts, have, need);
    memory.clear();
    for (std::size_t s = 0; s < have.size(); ++s) memory.push_back(have[s] - need[s]);
    if (*std::min_element(memory.begin(), memory.end()) >= 0) return true;
    const auto shifted = shift_capacity(capacity, have, need);
    if (!shifted) return false;
    capacity = *shifted;
  }
  return false;
}

/// Activations to the next stage, milliseconds. Metis counts elements, not bytes.
double MetisSearch::hop(const Path& path, int stage, int end) {
  const MetisStageChoice& from = choice(path, stage);
  double samples = from.nominal;
  if (settings_.as_published && end == tables_.layers - 1) {
    // The public code takes what the last layer produces for what it receives.
    samples *= static_cast<double>(input_.workload.shape.vocabulary) / from.tensor /
               static_cast<double>(input_.workload.shape.hidden);
  }
  return samples * stages_->hop_per_sample(path.first[at(stage)], (*path.sizes)[at(stage)],
                                           (*path.sizes)[at(stage + 1)]);
}

/// Milliseconds. [Metis, Eq. 1, with the terms of the public code that it does not print: time
/// outside the layers, optimizer, batch generator]
double MetisSearch::cost(const Path& path, const std::vector<int>& cuts) {
  const auto batches = static_cast<double>(batches_[at(path.batch)]);
  double sum = 0, slowest = 0, hops = 0, sync = 0, reduce = 0, update = 0;
  for (int s = 0; s < path.costed; ++s) {
    const MetisStageChoice& each = choice(path, s);
    const int begin = cuts[at(s)], end = cuts[at(s + 1)];
    const double time = stages_->time(each, begin, end);
    sum += time;
    slowest = std::max(slowest, time);
    if (s + 1 == path.costed) {
      sync = each.sync_ms * batches;
    } else {
      hops += hop(path, s, end);
    }
    reduce =
        std::max(reduce, each.reduce_ms_per_byte * (stages_->parameters(begin, end) / each.tensor));
    const double layers = static_cast<double>(end - begin) / tables_.layers;
    update = std::max(update, tables_.optimizer_ms / each.tensor * layers);
  }
  return (batches - 1) * slowest + sum + sync + update + reduce + hops +
         tables_.batch_generator_ms * batches;
}

/// The plan can be written down and keeps to the job. In fixed mode only empty stages are left.
bool MetisSearch::expressible(const Path& path, const std::vector<int>& cuts) {
  for (int s = 0; s < static_cast<int>(path.sizes->size()); ++s) {
    if (!settings_.as_published) {
      if (cuts[at(s)] == cuts[at(s + 1)]) return false;
      continue;
    }
    const MetisStageChoice& each = choice(path, s);
    const auto& allowed = tables_.allowed_tensor;
    const auto samples = std::accumulate(each.samples.begin(), each.samples.end(), std::int64_t{0});
    if (std::find(allowed.begin(), allowed.end(), each.tensor) == allowed.end() ||
        samples != input_.job.global_batch / batches_[at(path.batch)] ||
        *std::max_element(each.samples.begin(), each.samples.end()) >
            input_.job.allowed.max_micro_batch_size) {
      ++inexpressible_;
      return false;
    }
  }
  if (cuts.back() == tables_.layers) return true;
  ++inexpressible_;
  return false;
}

void MetisSearch::offer(const Path& path, const std::vector<int>& cuts) {
  if (!expressible(path, cuts)) return;
  const double ms = cost(path, cuts);
  if (!(ms < kNever)) return;
  if (best_.size() == wanted_ && !(ms < *best_.rbegin())) return;
  const Seconds estimate{ms / 1e3};
  ir::Plan plan = build(path, cuts);
  const ir::MemoryVerdict verdict =
      models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile);
  if (!verdict.fits()) {
    forbid_by_memory(report_, estimate, [&] {
      return fmt::format("{}: {}", in_words(plan, input_.workload), verdict.explain());
    });
    return;
  }
  best_.insert(ms);
  if (best_.size() > wanted_) best_.erase(std::prev(best_.end()));
  std::string what = in_words(plan, input_.workload);
  ranking_.offer(estimate, std::move(plan), std::move(what));
}

ir::Plan MetisSearch::build(const Path& path, const std::vector<int>& cuts) {
  ir::Plan plan;
  plan.schedule = schedule_;
  ir::Pipeline chain;
  chain.micro_batches = static_cast<int>(batches_[at(path.batch)]);
  chain.micro_batch_size = static_cast<int>(input_.job.global_batch / batches_[at(path.batch)]);
  for (int s = 0; s < static_cast<int>(path.sizes->size()); ++s) {
    if (cuts[at(s)] == cuts[at(s + 1)]) continue;  // Published plans may leave devices idle.
    const MetisStageChoice& each = choice(path, s);
    ir::Segment held = stages_->segment(cuts[at(s)], cuts[at(s + 1)]);
    auto next = placement_->devices.begin() + path.first[at(s)];
    for (const int samples : each.samples) {
      ir::Group group;
      group.devices.assign(next, next + each.tensor);
      next += each.tensor;
      group.tensor_parallel = each.tensor;
      group.samples = samples;
      held.groups.push_back(std::move(group));
    }
    chain.stages.push_back({{std::move(held)}});
  }
  plan.pipelines.push_back(std::move(chain));
  return plan;
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
      "{} arrangements of device groups were examined; not all were for {} stages (in some of the "
      "{} orders of the GPU types)",
      report_.work, ranges(stages), all.size()));
}

}  // namespace orrery::planners
