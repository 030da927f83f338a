#include "planners/metis/balance.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

constexpr int kPieces = 7;  ///< Of a layer.
constexpr int kMoves = 3;

int position_of_largest(const std::vector<double>& values) {
  return static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

LayerBalancer::LayerBalancer(std::vector<double> demand, bool keep_all)
    : demand_(std::move(demand)),
      keep_all_(keep_all),
      pieces_(static_cast<int>(demand_.size()) * kPieces) {
  for (const double share : demand_) piece_.push_back(share / kPieces);
}

void LayerBalancer::assign(int stage, int piece) {
  left_[stage] -= piece_[piece / kPieces];
  owner_[piece] = stage;
  ++count_[stage];
  first_[stage] = std::min(first_[stage], piece);
  last_[stage] = std::max(last_[stage], piece);
}

void LayerBalancer::fill_from_front() {
  int next = 0;
  for (int stage = 0; stage + 1 < stages_; ++stage) {
    // The last layer is kept for the last stage; the piece that does not fit stays unassigned.
    while (next < pieces_ - 1 - kPieces) {
      const int piece = next++;
      if (!(left_[stage] > piece_[piece / kPieces])) break;
      assign(stage, piece);
    }
  }
}

void LayerBalancer::fill_last_from_back() {
  const int stage = stages_ - 1;
  for (int piece = pieces_; piece-- > 0;) {
    if (owner_[piece] >= 0) continue;
    const bool adjacent = piece + 1 == first_[stage];
    if (count_[stage] < kPieces || (adjacent && left_[stage] > piece_[piece / kPieces])) {
      assign(stage, piece);
    }
  }
}

/// The stage with most capacity left from the one before the piece to the one behind it.
int LayerBalancer::between(int piece) const {
  int low = 0, high = stages_ - 1;
  double below = -kNever, above = kNever;
  for (int stage = 0; stage < stages_; ++stage) {
    if (count_[stage] == 0) continue;
    if (piece > last_[stage] && last_[stage] > below) {
      low = stage;
      below = last_[stage];
    }
    if (piece < first_[stage] && first_[stage] < above) {
      high = stage;
      above = first_[stage];
    }
  }
  int best = -1;
  double most = -kNever;
  for (int stage = low; stage <= high; ++stage) {
    if (left_[stage] > most) {
      most = left_[stage];
      best = stage;
    }
  }
  return best;
}

bool LayerBalancer::place_rest() {
  for (int piece = 0; piece < pieces_; ++piece) {
    if (owner_[piece] >= 0) continue;
    const int stage = between(piece);
    if (stage < 0) return false;
    assign(stage, piece);
  }
  return true;
}

/// The stage that holds most pieces of the layer (the first of equal ones), and how many.
std::pair<int, int> LayerBalancer::holder(int layer) const {
  const int* owner = owner_.data() + layer * kPieces;
  int best = owner[0], most = 0;
  for (int i = 0; i < kPieces && 2 * most <= kPieces; ++i) {
    int held = 0;
    for (int j = 0; j < kPieces; ++j) held += owner[j] == owner[i] ? 1 : 0;
    if (held > most || (held == most && owner[i] < best)) {
      most = held;
      best = owner[i];
    }
  }
  return {best, most};
}

/// From pieces to whole layers.
void LayerBalancer::settle(std::span<const double> capacity) {
  if (layers_.size() < as_size(stages_)) layers_.resize(stages_);
  for (int stage = 0; stage < stages_; ++stage) layers_[stage].clear();
  for (int layer = 0; layer < static_cast<int>(demand_.size()); ++layer) {
    const auto [stage, held] = holder(layer);
    if (2 * held > kPieces || keep_all_) layers_[stage].push_back(layer);
  }
  for (int stage = 0; stage < stages_; ++stage) {
    const std::vector<int>& held = layers_[stage];
    double sum = 0;
    if (!held.empty()) {
      for (int layer = held.front(); layer <= held.back(); ++layer) sum += demand_[layer];
    }
    left_[stage] = held.empty() ? capacity[stage] : capacity[stage] - sum;
  }
}

/// One layer of stage `from` that is next to stage `to` goes there.
int LayerBalancer::move_layer(int from, int to) {
  std::vector<int>& giver = layers_[from];
  std::vector<int>& taker = layers_[to];
  const auto moved = to > from ? std::prev(giver.end()) : giver.begin();
  const int layer = *moved;
  giver.erase(moved);
  taker.insert(std::upper_bound(taker.begin(), taker.end(), layer), layer);
  return layer;
}

/// One layer after the other to the stage with most capacity left, from the neighbor with least,
/// while that does not raise the most.
void LayerBalancer::move_layers() {
  for (int move = 1; move <= kMoves; ++move) {
    const int taker = position_of_largest(left_);
    int giver = -1;
    double least = kNever;
    for (const int near : {taker - 1, taker + 1}) {
      if (near < 0 || near >= stages_ || !(left_[near] < least)) continue;
      giver = near;
      least = left_[near];
    }
    if (giver < 0 || layers_[giver].size() < 2) return;  // Later moves would find the same.
    const double before = left_[taker], taken = left_[giver];
    const int layer = move_layer(giver, taker);
    left_[taker] -= demand_[layer];
    left_[giver] += demand_[layer];
    if (left_[position_of_largest(left_)] <= before) continue;
    std::vector<int>& held = layers_[taker];
    held.erase(std::find(held.begin(), held.end(), layer));
    std::vector<int>& back = layers_[giver];
    back.insert(std::upper_bound(back.begin(), back.end(), layer), layer);
    left_[taker] = before;
    left_[giver] = taken;
    return;
  }
}

std::optional<std::vector<int>> LayerBalancer::divide(std::span<const double> capacity) {
  stages_ = static_cast<int>(capacity.size());
  left_.assign(capacity.begin(), capacity.end());
  owner_.assign(pieces_, -1);
  first_.assign(stages_, std::numeric_limits<int>::max());
  last_.assign(stages_, -1);
  count_.assign(stages_, 0);
  fill_from_front();
  fill_last_from_back();
  if (!place_rest()) return std::nullopt;
  settle(capacity);
  move_layers();
  std::vector<int> cuts = {0};
  for (int stage = 0; stage < stages_; ++stage) {
    cuts.push_back(cuts.back() + static_cast<int>(layers_[stage].size()));
  }
  return cuts;
}

std::optional<std::vector<double>> shift_capacity(std::span<const double> capacity,
                                                  std::span<const double> memory,
                                                  std::span<const double> need) {
  constexpr double kMargin = 0.9;
  constexpr double kEnough = 0.01;
  constexpr double kThin = 0.001;
  std::vector<double> result, room;
  double missing = 0, all_room = 0;
  for (std::size_t s = 0; s < capacity.size(); ++s) {
    const bool fits = memory[s] > need[s];
    const double kept = fits ? capacity[s] : capacity[s] * (memory[s] / need[s]) * kMargin;
    result.push_back(kept);
    room.push_back(fits ? capacity[s] * memory[s] / need[s] - capacity[s] : 0);
    if (!fits) missing += capacity[s] - kept;
  }
  for (const double each : room) all_room += each;
  if (all_room < missing) return std::nullopt;
  std::vector<double> extra(capacity.size(), 0.0);
  while (missing > kEnough) {
    double takers = 0;
    for (std::size_t s = 0; s < room.size(); ++s) takers += room[s] > kThin ? capacity[s] : 0;
    if (!(takers > 0)) return std::nullopt;
    std::vector<double> share;
    for (std::size_t s = 0; s < room.size(); ++s) {
      share.push_back(room[s] > kThin ? capacity[s] / takers : 0);
    }
    for (std::size_t s = 0; s < room.size(); ++s) {
      const double given = missing * share[s] > room[s] ? room[s] : missing * share[s];
      extra[s] += given;
      room[s] -= given;
      missing -= given;
    }
  }
  for (std::size_t s = 0; s < result.size(); ++s) result[s] = extra[s] + result[s];
  return result;
}

std::vector<int> divide_samples(std::span<const double> time, int samples) {
  std::vector<double> share;
  double sum = 0;
  for (const double each : time) share.push_back(1.0 / each);
  for (const double each : share) sum += each;
  std::vector<int> result;
  std::vector<double> remainder;
  int left = samples;
  for (double& each : share) {
    each /= sum;
    const int whole = static_cast<int>(samples * each);
    result.push_back(whole);
    remainder.push_back(samples * each - whole);
    left -= whole;
  }
  std::vector<std::size_t> order(share.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; left > 0 && i < order.size(); ++i, --left) ++result[order[i]];
  return result;
}

}  // namespace orrery::planners
