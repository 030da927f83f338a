/// The command line as plain structs. Values stay text until a command reads them, so that a bad
/// value is reported like one in a file: `--dtype: unknown value 'bf61' (did you mean 'bf16'?)`.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace orrery::tools {

using Text = std::optional<std::string>;  ///< Empty: the flag was not given.

/// What is trained on what: shared by all commands that judge plans.
struct JobArgs {
  Text cluster;  ///< Name in the library, or a file.
  Text model;
  Text job;  ///< Job file; the flags below override what it says.
  Text global_batch;
  Text sequence_length;
  Text dtype;
  Text recompute;  ///< Comma-separated, as all lists below.
  Text zero_stages;
  Text schedules;
  Text max_tensor_parallel;
  Text max_micro_batch_size;
  bool sequence_parallel = false;
  Text profile;
  Text scale_profile;  ///< FROM=TO
};

/// How plans are judged.
struct JudgeArgs {
  Text cost;
  Text seed;
  Text jitter;
  std::vector<std::string> stragglers;  ///< device=factor
  std::vector<std::string> slow_links;  ///< link=factor
  Text inner;
  Text ring;
  bool expanded = false;
};

struct RunArgs {
  std::string manifest;
  std::string results = "results";
  Text workers;
  Text shard;
  bool no_figure = false;
  bool dry_run = false;
  bool timelines = false;
  bool quiet = false;
  bool json = false;
};

/// The job of `orrery plan` where neither a job file nor flags say more.
inline constexpr const char* kDefaultBatch = "1024";
inline constexpr const char* kDefaultLength = "4096";

struct PlanArgs {
  JobArgs job;
  JudgeArgs judge;
  std::string planners;              ///< Comma-separated names, or "all".
  std::vector<std::string> options;  ///< name=value
  Text work_budget;
  Text output;
  Text timeline;
  bool full = false;  ///< Print equal pipelines too.
  bool explain = false;
  bool json = false;
};

struct SimulateArgs {
  JobArgs job;
  JudgeArgs judge;
  std::vector<std::string> plans;
  Text timeline;
  Text log;
  Text program;
  bool full = false;
  bool json = false;
};

struct ValidateArgs {
  JobArgs job;
  std::vector<std::string> files;
};

struct DiffArgs {
  JobArgs job;
  JudgeArgs judge;
  std::string first;
  std::string second;
  bool json = false;
};

struct ListArgs {
  std::string what;
  std::vector<std::string> names;  ///< Of planners, step planners or policies.
  bool markdown = false;
  bool json = false;
};

/// Steps with sequences of mixed lengths.
struct MixedLengthArgs {
  std::string file;
  std::string results = "results";
  Text steps;
  Text workers;
  Text shard;
  Text plan;  ///< File for the plan of one step.
  Text of;    ///< CASE/SYSTEM/STEP
  bool no_figure = false;
  bool dry_run = false;
  bool quiet = false;
};

/// A change from one plan to another.
struct SwitchArgs {
  JobArgs job;
  std::string from;
  std::string to;
  Text lost;     ///< Devices: 24-31,40
  Text state;    ///< weights or all
  Text variant;  ///< fused, unfused or no-heuristics
  bool json = false;
};

/// A plan as an annotated graph.
struct AnnotateArgs {
  JobArgs job;
  std::string plan;
  bool json = false;
};

struct SchemaArgs {
  std::string kind;
  bool reference = false;
};

/// Files of other systems as ours.
struct ImportArgs {
  std::string what;                ///< metis-profile, nvidia-topo, ...; orrery import --help.
  std::vector<std::string> files;  ///< Or a folder.
  std::vector<std::string> gpus;   ///< TYPE=NAME
  std::vector<std::string> links;  ///< KIND=CLASS, or CLASS
  Text cluster;                    ///< Whose names count beside the library's.
  Text bandwidth_unit;
  Text output;
};

/// Recovery policies on a trace: a study file, or flags that say the same.
struct ReplayArgs {
  std::string file;  ///< replay.yaml or its folder; empty: the flags say what is replayed.
  JobArgs job;
  Text trace;
  Text format;
  Text generate;                      ///< Generator, or a file with its settings.
  std::vector<std::string> settings;  ///< NAME=VALUE of generator or format.
  Text days;
  bool repeat = false;               ///< The trace file starts again where it ends.
  Text policies;                     ///< Comma-separated, or "all".
  std::vector<std::string> options;  ///< POLICY.NAME=VALUE
  Text seeds;                        ///< A count, or a list: 1,2,5
  Text expected_mtbf;
  Text planning_time;
  Text prices;
  bool background = false;
  Text plan;
  std::string results = "results";
  Text workers;
  Text shard;
  bool no_figure = false;
  bool dry_run = false;
  bool quiet = false;
  bool json = false;
};

/// Emulated nodes on this machine.
struct NetlabArgs {
  std::string action;   ///< up, down, status; switch: the process that carries frames.
  std::string cluster;  ///< Of switch: the path of the lab's state.
  bool json = false;
};

/// Draws a trace of failures and spot nodes.
struct TraceGenerateArgs {
  std::string generator;  ///< Name in the library, or a file.
  Text cluster;
  Text gpus;
  Text gpus_per_node;
  Text gpu_type;
  Text days;
  Text seed;
  bool conditioned = false;
  std::vector<std::string> settings;  ///< KEY.PATH=VALUE
  Text output;
};

struct TraceStatsArgs {
  std::string file;
  Text csv;
  Text figure;
  bool json = false;
};

/// Traces of others as ours.
struct TraceImportArgs {
  std::string format;
  std::vector<std::string> files;
  std::vector<std::string> gpu_types;  ///< One for each file, or none.
  Text gpus_per_node;
  Text order;
  Text seed;
  Text days;
  Text output;
};

/// Runs a plan for real.
struct ExecuteArgs {
  std::string plan;  ///< Or `planner`.
  Text planner;
  JobArgs job;
  Text steps;
  Text backend;
  Text library;
  Text transport;
  Text precision;
  Text data;
  Text learning_rate;
  Text seed;
  Text out;
  Text log_steps;
  std::vector<std::string> slowdowns;  ///< DEVICE=FACTOR
  Text ranks;                          ///< processes or threads
  Text shares;                         ///< 0=50,1=25, or one number for all
  Text hosts;                          ///< a:4,b:8
  bool ssh = false;
  bool netlab = false;
  Text listen;
  Text advertise;
  Text checkpoint_every;
  Text checkpoints;
  Text cloud;
  bool prune_checkpoints = false;
  Text elastic;
  Text silence;
  std::vector<std::string> kills;     ///< RANK@STEP
  std::vector<std::string> switches;  ///< PLAN@STEP
  bool quiet = false;
  bool json = false;
};

/// Starts ranks on this machine for a launcher on another one.
struct ExecuteAgentArgs {
  std::string store;
  std::string node;
  Text address;
  Text wait;               ///< Seconds.
  Text network_namespace;  ///< To enter first.
};

/// A run that was executed against its simulation.
struct CompareArgs {
  std::string run;
  Text profile;
  Text cluster;
  Text warm_up;
  Text worst;
  Text out;
  bool no_figure = false;
  bool json = false;
};

/// Plan, execute, calibrate, predict and compare, as a manifest says.
struct TwinArgs {
  std::string manifest;
  Text results;
  Text steps;
  Text only;
  bool loopback = false;
  bool quick = false;
  bool dry_run = false;
  bool no_figure = false;
  bool json = false;
};

/// Measures a machine and fits a profile.
struct CalibrateArgs {
  std::string out = "results/calibration";
  Text backend;
  Text library;
  Text precision;
  Text model;
  Text sequence_length;
  Text cluster;
  Text gpu_type;
  Text shares;  ///< Percent of a GPU's multiprocessors: 50,25
  Text ranks;
  Text only;  ///< Kinds of measurements.
  Text checkpoints;
  Text cloud;
  Text hosts;  ///< a:4,b:8
  bool ssh = false;
  bool netlab = false;
  Text listen;
  Text advertise;
  bool quick = false;
  bool fit_only = false;
  bool no_figure = false;
  bool quiet = false;
  bool json = false;
};

using Command =
    std::variant<ExecuteArgs, ExecuteAgentArgs, RunArgs, PlanArgs, SimulateArgs, ValidateArgs,
                 DiffArgs, ListArgs, SchemaArgs, MixedLengthArgs, SwitchArgs, AnnotateArgs,
                 ImportArgs, ReplayArgs, TraceGenerateArgs, TraceStatsArgs, TraceImportArgs,
                 NetlabArgs, CompareArgs, TwinArgs, CalibrateArgs>;

/// Instead of a command: --help and --version (status 0), or what is wrong (status 2).
struct Reply {
  std::string text;
  int status = 0;
};

std::variant<Command, Reply> parse_command_line(int argc, const char* const* argv);

}  // namespace orrery::tools
