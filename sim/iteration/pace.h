/// The pace at which consecutive iterations of a program follow each other when no rank waits for
/// the others between them (ir::OptimizerStart::staggered).
#pragma once
#include <span>
#include <vector>

#include "models/base/units.h"

namespace orrery::sim {

/// By rank: when it ends an iteration.
using RankEnds = std::vector<Seconds>;
/// The first and the last of them; 0 without ranks.
Seconds earliest(const RankEnds& ends);
Seconds latest(const RankEnds& ends);

struct Pace {
  Seconds period;       ///< Time from one iteration to the next.
  int window = 1;       ///< Number of last iterations that it is the mean of.
  bool settled = true;  ///< All ranks keep this pace; else it is the mean over the second half.
};

/// The share of the period by which the progress of ranks over the window may differ.
inline constexpr double kSettled = 1e-6;

/// `ends` are those of iterations 0 to n, n >= 1, all with the same ranks; ends[0] is when the
/// ranks began iteration 1. The pace has settled when over the last `window` iterations, the
/// smallest number up to n / 2 for which it is so, all ranks advanced by the same time, to within
/// kSettled of it and to within `precision`. If iterations differ only in when their ranks begin
/// them, the pace then stays the same forever: an iteration maps the times at which ranks end the
/// previous one to the times at which they end this one by sums and maxima, so that shifting all
/// inputs shifts all outputs. (Such a system whose ranks all wait for each other at some point has
/// one period and reaches it after finitely many iterations. [Baccelli et al. 1992, Synchronization
/// and Linearity, chapter 3]) Where flows of different iterations share links, a settled pace is an
/// observation only.
/// period = (max over ranks of ends[n] - max over ranks of ends[n - window]) / window.
Pace find_pace(std::span<const RankEnds> ends, Seconds precision);

}  // namespace orrery::sim
