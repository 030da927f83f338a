/// What a report page shows, as described values: plans drawn on their cluster, timelines, memory
/// over time, the rows of a study, replays over time, and where every number comes from. The page
/// itself (tools/report) gets all of it as one JSON and draws it; it computes nothing that is not
/// here.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "experiments/study/replay_ranking.h"
#include "models/config/visitor.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

/// A GPU of the drawing.
struct PageGpu {
  std::int64_t id = 0;
  std::string type;
  std::optional<int> pipeline;  ///< None: the plan does not use it.
  std::optional<int> stage;
  /// Shares of the logged time; none where the log has no spans of it: its pipeline does the same
  /// as one that was simulated.
  std::optional<double> compute;
  std::optional<double> collectives;  ///< Inside passes.
};

struct PageNode {
  std::string name;
  std::string region;
  int leaf = 0;
  std::vector<PageGpu> gpus;
};

struct PageLink {
  std::string name;
  std::optional<std::string> node;  ///< That it belongs to; none: a link of the fabric.
  double share = 0;                 ///< Of the logged time that it is busy.
  Bytes bytes;
  BytesPerSecond capacity;
};

/// A row of the timeline. `spans` has three whole numbers for each span, in the order of time: ns
/// since the end of the one before it (of the first: since 0), ns that it lasts, and the index of
/// its name in PageTimeline::names. As one text, 50,000 spans take half a megabyte.
struct PageRow {
  std::string rank;
  std::string lane;
  std::string spans;
};

struct PageTimeline {
  std::vector<std::string> names;
  std::vector<std::string> kinds;  ///< Of each name: what it is colored by.
  std::vector<PageRow> rows;
  std::int64_t spans = 0;               ///< Of the whole log.
  std::optional<std::string> left_out;  ///< What is not drawn, in words.
};

struct PageMemory {
  std::string rank;
  std::string gpu;
  Bytes have;
  std::vector<std::int64_t> at;   ///< ns
  std::vector<double> allocated;  ///< bytes
};

/// A file, or another source, that decided what the page shows.
struct PageSource {
  std::string what;
  std::string name;
  std::string hash;
};

struct PlanPage {
  std::string name;
  std::vector<std::string> sentences;
  std::optional<models::Evaluation> evaluation;
  std::vector<StageLoad> loads;
  std::vector<PageNode> nodes;
  std::vector<PageLink> links;
  std::optional<PageTimeline> timeline;
  std::vector<PageMemory> memory;
  std::vector<std::string> prices;
  std::vector<PageSource> sources;
  std::string effective;  ///< The effective configuration, YAML.
};

struct StudyPage {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> axes;      ///< Columns of settings that tell rows apart, each way once.
  std::vector<std::string> measures;  ///< Columns of results that are numbers and differ.
};

/// A replay over time: of one policy under one trace.
struct ReplayPage {
  std::string run;
  std::string in_case;
  std::string policy;
  std::string axes;
  std::string seed;
  std::map<std::string, std::vector<double>> buckets;  ///< Shares of each slice of the horizon.
  std::vector<double> at;                              ///< Days, of the curves below.
  std::vector<double> tokens;                          ///< That count so far.
  std::vector<double> live;                            ///< GPUs.
  std::vector<double> in_plan;                         ///< GPUs.
  std::vector<double> lost_at;                         ///< Days, of the interruptions.
  std::vector<std::string> causes;
  std::vector<double> stalls;  ///< Seconds.
};

struct Page {
  std::string title;
  std::string made_by;  ///< Program and version.
  std::string command;
  std::vector<std::string> sentences;
  std::vector<PageSource> sources;
  std::vector<PlanPage> plans;
  std::optional<StudyPage> study;
  std::vector<Standing> ranking;
  std::vector<Unable> unable;
  std::vector<ReplayPage> replays;
  double horizon_days = 0;  ///< Of the replays.
};

void describe(config::Visitor& v, PageGpu& gpu);
void describe(config::Visitor& v, PageNode& node);
void describe(config::Visitor& v, PageLink& link);
void describe(config::Visitor& v, PageRow& row);
void describe(config::Visitor& v, PageTimeline& timeline);
void describe(config::Visitor& v, PageMemory& memory);
void describe(config::Visitor& v, PageSource& source);
void describe(config::Visitor& v, PlanPage& plan);
void describe(config::Visitor& v, StudyPage& study);
void describe(config::Visitor& v, ReplayPage& replay);
void describe(config::Visitor& v, Page& page);

/// The most spans that a timeline draws; beyond it come the earliest.
inline constexpr std::int64_t kSpansDrawn = 200'000;

/// The page of a plan that ran, be it in the simulator or for real. Without spans in the log there
/// is no timeline, and GPUs have no shares.
PlanPage plan_page(const std::string& name, const LoadedRun& run, const ir::Plan& plan,
                   const std::optional<models::Evaluation>& evaluation, const ir::Program& program,
                   const ir::RunLog& log);

/// What a study's runs.csv says: which columns are settings that vary, which are numbers.
StudyPage study_page(std::vector<std::vector<std::string>> table);

/// A run of a replay study: its row of runs.csv and its folder with buckets.csv, points.csv and
/// interruptions.csv; what is not there stays empty. Throws std::runtime_error for a damaged file.
ReplayPage replay_page(const CsvRow& row, const std::string& axes, const std::string& folder);

/// The page's template with the data in it. Throws std::runtime_error if `html` has no place for
/// data.
std::string with_data(std::string html, const std::string& json);

}  // namespace orrery::experiments
