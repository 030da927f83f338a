/// The commands. Each prints to standard output and returns the exit status; problems of files and
/// flags are thrown as one config::ConfigError.
#pragma once
#include "tools/cli/args.h"

namespace orrery::tools {

int execute(const RunArgs& args);
int execute(const PlanArgs& args);
int execute(const SimulateArgs& args);
int execute(const ValidateArgs& args);
int execute(const DiffArgs& args);
int execute(const ListArgs& args);
int execute(const ImportArgs& args);
int execute(const SchemaArgs& args);
int execute(const MixedLengthArgs& args);
int execute(const SwitchArgs& args);
int execute(const AnnotateArgs& args);
int execute(const ReplayArgs& args);
int execute(const ExecuteArgs& args);
int execute(const ExecuteAgentArgs& args);
int execute(const TraceGenerateArgs& args);
int execute(const TraceStatsArgs& args);
int execute(const TraceImportArgs& args);
int execute(const NetlabArgs& args);
int execute(const CalibrateArgs& args);
int execute(const CompareArgs& args);
int execute(const TwinArgs& args);

}  // namespace orrery::tools
