#include "calibration/fit/segments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "calibration/fit/robust.h"
#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::calibration {
namespace {

/// The share of the largest message's time that a bandwidth too large to be seen may add to it.
constexpr double kInvisible = 1e-3;
/// Relative residuals are squared up to here when numbers of segments are compared, linear beyond.
constexpr double kLossLimit = 0.1;

double loss_of(double residual) {
  const double size = std::abs(residual);
  return size <= kLossLimit ? 0.5 * size * size : kLossLimit * (size - 0.5 * kLossLimit);
}

/// One candidate: sizes [first, last] of the distinct sizes.
struct Piece {
  TimeSegment fit;
  double loss = 0;
};

class Search {
 public:
  explicit Search(std::vector<SizedTime> times) : times_(std::move(times)) {
    for (std::size_t i = 0; i < times_.size(); ++i) {
      if (i == 0 || times_[i].bytes != times_[i - 1].bytes) begin_.push_back(i);
    }
    begin_.push_back(times_.size());
    pieces_.resize(begin_.size() * begin_.size());
  }

  std::vector<TimeSegment> best() {
    const int sizes = count();
    const int most = std::max(1, std::min(kMaxSegments, sizes / kMinSizesPerSegment));
    std::vector<TimeSegment> chosen;
    double least = std::numeric_limits<double>::infinity();
    const double samples = static_cast<double>(times_.size());
    for (int pieces = 1; pieces <= most; ++pieces) {
      const auto found = with(pieces);
      if (!found) continue;
      const double loss = std::max(found->second / samples, loss_of(kWorthwhileError));
      const double criterion = samples * std::log(loss) + (5.0 * pieces - 3) * std::log(samples);
      if (criterion >= least) continue;
      least = criterion;
      chosen = found->first;
    }
    chosen.front().from = 0;
    return chosen;
  }

 private:
  int count() const { return static_cast<int>(begin_.size()) - 1; }
  double size(int i) const { return times_[begin_[i]].bytes; }

  const Piece& piece(int first, int last) {
    std::optional<Piece>& known = pieces_[as_size(first * count() + last)];
    if (!known) known = make_piece(first, last);
    return *known;
  }

  Piece make_piece(int first, int last) const {
    Design design;
    for (std::size_t i = begin_[first]; i < begin_[last + 1]; ++i) {
      if (first == last) {
        design.add({1}, times_[i].seconds);
      } else {
        design.add({1, times_[i].bytes}, times_[i].seconds);
      }
    }
    const std::vector<double> coefficients = fit_relative(design);
    Piece made;
    made.fit = {size(first), coefficients[0], first == last ? 0 : coefficients[1]};
    const double invisible =
        kInvisible * std::max(made.fit.latency, times_.front().seconds) / std::max(size(last), 1.0);
    made.fit.per_byte = std::max(made.fit.per_byte, invisible);
    for (std::size_t i = begin_[first]; i < begin_[last + 1]; ++i) {
      const double fitted = made.fit.latency + made.fit.per_byte * times_[i].bytes;
      made.loss += loss_of((fitted - times_[i].seconds) / times_[i].seconds);
    }
    return made;
  }

  /// The best choice of `pieces` pieces and its loss, if there is one whose time never falls.
  std::optional<std::pair<std::vector<TimeSegment>, double>> with(int pieces);

  std::vector<SizedTime> times_;
  std::vector<std::size_t> begin_;            ///< By distinct size, into times_.
  std::vector<std::optional<Piece>> pieces_;  ///< By first and last size.
};

/// table[k][first][last]: least loss of k + 1 pieces of which the last covers [first, last].
std::optional<std::pair<std::vector<TimeSegment>, double>> Search::with(int pieces) {
  struct Entry {
    double loss = std::numeric_limits<double>::infinity();
    int before = -1;  ///< First size of the piece before.
  };
  const int sizes = count();
  const int least = pieces == 1 ? 1 : kMinSizesPerSegment;
  const auto cells = as_size(sizes) * as_size(sizes);
  std::vector<std::vector<Entry>> table(pieces, std::vector<Entry>(cells));
  const auto at = [&](int k, int first, int last) -> Entry& {
    return table[k][as_size(first * sizes + last)];
  };
  for (int last = least - 1; last < sizes; ++last) at(0, 0, last).loss = piece(0, last).loss;
  for (int k = 1; k < pieces; ++k) {
    for (int first = k * least; first < sizes; ++first) {
      for (int last = first + least - 1; last < sizes; ++last) {
        const Piece& own = piece(first, last);
        const double starts = own.fit.latency + own.fit.per_byte * size(first);
        for (int start = 0; start + least <= first; ++start) {
          const double before = at(k - 1, start, first - 1).loss;
          if (std::isinf(before)) continue;
          const Piece& left = piece(start, first - 1);
          if (left.fit.latency + left.fit.per_byte * size(first) > starts) continue;
          Entry& entry = at(k, first, last);
          if (before + own.loss < entry.loss) entry = {before + own.loss, start};
        }
      }
    }
  }
  Entry best;
  int first = -1;
  for (int start = 0; start < sizes; ++start) {
    const Entry& entry = at(pieces - 1, start, sizes - 1);
    if (entry.loss >= best.loss) continue;
    best = entry;
    first = start;
  }
  if (first < 0) return std::nullopt;
  std::vector<TimeSegment> segments;
  int last = sizes - 1;
  for (int k = pieces - 1; k >= 0; --k) {
    segments.insert(segments.begin(), piece(first, last).fit);
    const int before = at(k, first, last).before;
    last = first - 1;
    first = before;
  }
  return std::pair{segments, best.loss};
}

/// The first and the last size and those between at least `gap` above the last one kept, in log.
std::vector<double> spaced(const std::vector<double>& sizes, double gap) {
  std::vector<double> kept = {sizes.front()};
  for (const double size : sizes) {
    if (std::log(size) - std::log(std::max(kept.back(), 1.0)) >= gap) kept.push_back(size);
  }
  if (kept.back() != sizes.back()) kept.push_back(sizes.back());
  return kept;
}

/// Leaves kMostSizes distinct sizes at most. `times` are sorted.
void thin(std::vector<SizedTime>& times) {
  std::vector<double> sizes;
  for (const SizedTime& one : times) {
    if (sizes.empty() || one.bytes != sizes.back()) sizes.push_back(one.bytes);
  }
  if (sizes.size() <= kMostSizes) return;
  double dense = 0, sparse = 1 + std::log(std::max(sizes.back(), 1.0));
  for (int halving = 0; halving < 60; ++halving) {
    const double gap = (dense + sparse) / 2;
    (spaced(sizes, gap).size() > kMostSizes ? dense : sparse) = gap;
  }
  const std::vector<double> kept = spaced(sizes, sparse);
  std::erase_if(times, [&](const SizedTime& one) {
    return !std::binary_search(kept.begin(), kept.end(), one.bytes);
  });
}

}  // namespace

std::vector<TimeSegment> fit_segments(std::vector<SizedTime> times) {
  if (times.empty()) return {};
  for (const SizedTime& one : times) {
    ORRERY_CHECK(one.seconds > 0, "a message of {} bytes took {} s", one.bytes, one.seconds);
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const SizedTime& a, const SizedTime& b) { return a.bytes < b.bytes; });
  thin(times);
  return Search(std::move(times)).best();
}

double time_of(const std::vector<TimeSegment>& segments, double bytes) {
  ORRERY_CHECK(!segments.empty(), "the time of a message without a fit");
  const TimeSegment* own = &segments.front();
  for (const TimeSegment& segment : segments) {
    if (segment.from <= bytes) own = &segment;
  }
  return own->latency + own->per_byte * bytes;
}

}  // namespace orrery::calibration
