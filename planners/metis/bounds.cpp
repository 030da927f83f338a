// Lower bounds of Metis's search: over all permutations of device groups at once, and along a path.
// They leave out only what cannot be among the best, so that the result is that of the full search.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "planners/kit/integers.h"
#include "planners/metis/search.h"

namespace orrery::planners {
namespace {

constexpr double kBoundRounding = 1e-9;  ///< Relative; bounds and costs add up in different orders.

}  // namespace

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
        const MetisStageBound& bound = stages_->bound(rank, size, batch, 0);
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
  return (*best_.rbegin() * (1 + kBoundRounding) - known) * (1 + kBoundRounding);
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

/// No plan further along the path can be among the best. Stage times are at least those of the best
/// choices that are left, and the slowest stage at least what lets all layers find a place.
bool MetisSearch::hopeless(const Path& path) {
  if (!settings_.bounds || settings_.as_published()) return false;
  const int stages = static_cast<int>(path.sizes->size());
  double share = kNever, first = kNever, last = kNever, hops = 0, sync = 0;
  for (int s = 0; s < stages; ++s) {
    const int size = (*path.sizes)[at(s)];
    const MetisStageBound& bound =
        stages_->bound(path.first[at(s)], size, path.batch, path.step[at(s)]);
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
  const double best = *best_.rbegin() * (1 + kBoundRounding);
  const auto batches = static_cast<double>(batches_[at(path.batch)]);
  double known = hops + (sync + tables_.batch_generator_ms) * batches;
  const int inner = tables_.layers - 2;
  if (inner <= 0) return known > best;
  known += share * inner_share_ + first + last;
  if (known > best) return true;
  if (!has_room(path, (best - known) * (1 + kBoundRounding))) return true;
  // Not all layers find room in the fastest stages: the sum of stage times is larger.
  const double fuller = known - share * inner_share_ + least_sum();
  return fuller > known &&
         (fuller > best || !has_room(path, (best - fuller) * (1 + kBoundRounding)));
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
  for (const MetisLayerBound& bound : stages_->layer_bounds(first, size, batch).subspan(at(step))) {
    if (bound.time == kNever) continue;
    fastest = std::min(fastest, bound.time);
    double layers = std::floor(std::min(enough, slack * bound.rate));
    const double each = bound.states_mb + in_flight * bound.kept_mb;
    const double have = bound.have_mb * (1 + kBoundRounding);
    if (layers * each > have) layers = std::floor(have / each);
    most = std::max(most, layers);
  }
  return {most, fastest};
}

}  // namespace orrery::planners
