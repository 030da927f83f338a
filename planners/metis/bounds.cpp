#include "planners/metis/bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/base/ids.h"

namespace orrery::planners {
namespace {

constexpr double kBoundRounding = 1e-9;  ///< Relative; bounds and costs add up in different orders.

}  // namespace

MetisBounds::MetisBounds(const MetisProblem& problem, MetisStages& stages,
                         const MetisProgress& progress)
    : problem_(problem), tables_(problem.tables), stages_(stages), progress_(progress) {
  for (std::size_t l = 1; l + 1 < tables_.demand.size(); ++l) inner_share_ += tables_.demand[l];
}

MetisLattice::MetisLattice(const DeviceGroups& device_groups) {
  for (const std::vector<int>& each : device_groups.permuted()) {
    if (groups.empty() || groups.back() != each) {
      groups.push_back(each);
      counts.push_back(0);
    }
    ++counts.back();
  }
  int states = 1;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    strides.push_back(states);
    states *= counts[g] + 1;
    stages += counts[g] * static_cast<int>(groups[g].size());
    // The first permutation is non-increasing.
    first.insert(first.begin(), as_size(counts[g]), static_cast<int>(g));
  }
  for (int state = 0; state < states; ++state) {
    int ranks = 0, before = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::vector<int>& group = groups[g];
      ranks += placed(g, state) * std::accumulate(group.begin(), group.end(), 0);
      before += placed(g, state) * static_cast<int>(group.size());
    }
    rank.push_back(ranks);
    stage.push_back(before);
  }
}

bool MetisBounds::possible(const MetisLattice& lattice, int batch) const {
  const std::int64_t samples = problem_.input.job.global_batch / problem_.batches[batch];
  return std::all_of(lattice.groups.begin(), lattice.groups.end(), [&](const auto& group) {
    return std::all_of(group.begin(), group.end(), [&](int size) {
      for (int step = 0; step < stages_.steps(size); ++step) {
        const std::int64_t each = samples / (size >> step);
        if (each >= 1 && each <= tables_.max_samples()) return true;
      }
      return false;
    });
  });
}

/// Milliseconds that the slowest stage may add beyond what every permutation costs at least;
/// negative if that is too much already.
double MetisBounds::slack(const MetisLattice& lattice, int batch) {
  double share = kNever, first = kNever, last = kNever, sync = kNever;
  for (std::size_t state = 0; state < lattice.rank.size(); ++state) {
    for (std::size_t g = 0; g < lattice.groups.size(); ++g) {
      if (lattice.placed(g, static_cast<int>(state)) == lattice.counts[g]) continue;
      int rank = lattice.rank[state];
      for (const int size : lattice.groups[g]) {
        const MetisStageBound& bound = stages_.bound(rank, size, batch, 0);
        share = std::min(share, bound.per_share);
        first = std::min(first, bound.first);
        last = std::min(last, bound.last);
        sync = std::min(sync, bound.sync);
        rank += size;
      }
    }
  }
  if (first == kNever) return -1;
  if (!progress_.full()) return kNever;
  const double known =
      (sync + tables_.batch_generator_ms) * static_cast<double>(problem_.batches[batch]) +
      (tables_.layers > 2 ? share * inner_share_ + first + last : 0);
  return (progress_.worst() * (1 + kBoundRounding) - known) * (1 + kBoundRounding);
}

bool MetisBounds::weigh(MetisLattice& lattice, int batch) {
  const std::size_t states = lattice.rank.size(), kinds = lattice.groups.size();
  if (!problem_.settings.bounds) {
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
      const double later = lattice.suffix[state + as_size(lattice.strides[g])];
      double layers = 0;
      int rank = lattice.rank[state], stage = lattice.stage[state];
      for (const int size : lattice.groups[g]) {
        // Without any choice there is no plan.
        const bool none = stages_.bound(rank, size, batch, 0).first == kNever;
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

bool MetisBounds::hopeless(const MetisPath& path) {
  if (!problem_.settings.bounds || problem_.settings.as_published()) return false;
  const int stages = path.stages();
  double share = kNever, first = kNever, last = kNever, hops = 0, sync = 0;
  for (int s = 0; s < stages; ++s) {
    const int size = path.size(s);
    const MetisStageBound& bound = stages_.bound(path.first[s], size, path.batch, path.step[s]);
    if (bound.first == kNever) return true;
    share = std::min(share, bound.per_share);
    first = std::min(first, bound.first);
    last = std::min(last, bound.last);
    if (s + 1 < stages) {
      // The last cut may be the head's.
      const double least =
          s + 2 < stages
              ? 1
              : std::min(1.0, stages_.head_input(tables_.max_tensor(), tables_.layers - 1));
      hops += least * bound.samples * stages_.hop_per_sample(path.first[s], size, path.size(s + 1));
    } else {
      sync = bound.sync;
    }
  }
  if (!progress_.full()) return false;
  const double best = progress_.worst() * (1 + kBoundRounding);
  const auto batches = static_cast<double>(problem_.batches[path.batch]);
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
bool MetisBounds::has_room(const MetisPath& path, double slack) {
  const int inner = tables_.layers - 2;
  const int stages = path.stages();
  double layers = 0;
  rooms_.clear();
  for (int s = 0; s < stages; ++s) {
    const int size = path.size(s);
    const int first = path.first[s];
    const auto [here, fastest] =
        room(first, size, path.batch, path.step[s], in_flight(stages, s, path.batch), slack);
    layers += here;
    rooms_.emplace_back(fastest, here);
  }
  return layers >= inner;
}

/// Least sum of stage times when all inner layers are in the stages that has_room() found room in.
double MetisBounds::least_sum() {
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
int MetisBounds::in_flight(int stages, int stage, int batch) const {
  if (problem_.schedule != ir::ScheduleKind::one_f_one_b) return 1;
  return static_cast<int>(std::min<std::int64_t>(problem_.batches[batch], stages - stage));
}

/// Most inner layers of a stage that adds at most `slack` milliseconds (by the slowest stage's
/// further micro-batches, the gradients and the optimizer, each of which counts where it is
/// largest) and that memory allows; with the least time of a layer.
std::pair<double, double> MetisBounds::room(int first, int size, int batch, int step, int in_flight,
                                            double slack) {
  const double enough = tables_.layers;
  double most = 0, fastest = kNever;
  for (const MetisLayerBound& bound :
       stages_.layer_bounds(first, size, batch).subspan(as_size(step))) {
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
