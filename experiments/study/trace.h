/// Traces of failures and spot nodes: drawn, or read from the formats of others. What `orrery trace
/// generate` and `orrery trace import` do.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/days.h"
#include "experiments/study/exports.h"
#include "traces/import/import.h"

namespace orrery::experiments {

/// Traces of others as ours.
struct TraceImportSettings {
  std::string format;
  std::vector<std::string> files;
  std::vector<std::string> gpu_types;  ///< One for each file, or none.
  std::int64_t gpus_per_node = 1;
  std::optional<std::int64_t> nodes;
  decltype(traces::ImportOptions::order) order = traces::ImportOptions{}.order;
  std::int64_t seed = 0;
  std::optional<Days> days;
  Text time;  ///< Columns of `csv`.
  Text node;
  Text event;
  Text cause;
  std::map<std::string, std::string> map;  ///< Words of `csv` for events.
  std::optional<Seconds> repair_after;
  Text start;  ///< ISO time that is 0 of the trace.
  Text output;
};

void describe(config::Visitor& v, TraceImportSettings& settings);

/// Draws a trace of failures and spot nodes.
struct TraceGenerateSettings {
  std::string generator;  ///< Name in the library, or a file.
  Text cluster;
  std::optional<std::int64_t> gpus;
  std::optional<std::int64_t> gpus_per_node;
  Text gpu_type;
  Days days{54};
  std::int64_t seed = 0;
  bool conditioned = false;
  std::vector<std::string> settings;  ///< KEY.PATH=VALUE
  Text output;
};

void describe(config::Visitor& v, TraceGenerateSettings& settings);

/// Traces as text (traces/csv.h). `problems`: those found in the settings so far.
TextResult generate_trace(const TraceGenerateSettings& settings, const Call& call,
                          config::Diagnostics problems = {});
TextResult import_traces(const TraceImportSettings& settings, const Call& call,
                         config::Diagnostics problems = {});

}  // namespace orrery::experiments
