/// Counts, times between failures and availability of a trace: what `orrery trace stats` does.
#pragma once
#include <string>

#include "experiments/study/call.h"
#include "experiments/study/exports.h"
#include "traces/statistics.h"

namespace orrery::experiments {

struct TraceStatsSettings {
  std::string file;
  Text csv;     ///< For the GPUs that are there over time; "-": TraceStatsResult::curve.
  Text figure;  ///< Of them.
};
void describe(config::Visitor& v, TraceStatsSettings& settings);

struct TraceStatsResult {
  traces::TraceStatistics statistics;
  Text curve;          ///< CSV of the GPUs that are there over time, where it was asked for.
  bool figure = true;  ///< It was drawn, or not asked for; not described.
};
/// The statistics, and the curve if there is one.
void describe(config::Visitor& v, TraceStatsResult& result);
/// 1: the figure could not be drawn; a note says why.
int exit_status(const TraceStatsResult& result);

TraceStatsResult trace_stats(const TraceStatsSettings& settings, const Call& call);

}  // namespace orrery::experiments
