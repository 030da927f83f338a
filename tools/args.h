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
  std::vector<std::string> names;  ///< Of planners.
  bool markdown = false;
  bool json = false;
};

/// Steps with sequences of mixed lengths.
struct MixedLengthArgs {
  std::string file;
  std::string results = "results";
  Text steps;
  bool no_figure = false;
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

struct SchemaArgs {
  std::string kind;
  bool reference = false;
};

/// Files of other systems as ours.
struct ImportArgs {
  std::string what;                ///< metis-profile or metis-cluster.
  std::vector<std::string> files;  ///< Or a folder.
  std::vector<std::string> gpus;   ///< TYPE=NAME
  Text bandwidth_unit;
  Text output;
};

using Command = std::variant<RunArgs, PlanArgs, SimulateArgs, ValidateArgs, DiffArgs, ListArgs,
                             SchemaArgs, MixedLengthArgs, SwitchArgs, ImportArgs>;

/// Instead of a command: --help and --version (status 0), or what is wrong (status 2).
struct Reply {
  std::string text;
  int status = 0;
};

std::variant<Command, Reply> parse_command_line(int argc, const char* const* argv);

}  // namespace orrery::tools
