#include "tools/commands/catalog.h"

#include <array>

namespace orrery::tools {

extern const Command kRun;
extern const Command kPlan;
extern const Command kSimulate;
extern const Command kInit;
extern const Command kValidate;
extern const Command kDiff;
extern const Command kList;
extern const Command kSchema;
extern const Command kMixedLength;
extern const Command kSwitch;
extern const Command kImport;
extern const Command kExport;
extern const Command kReplay;
extern const Command kReport;
extern const Command kTraceGenerate;
extern const Command kTraceStats;
extern const Command kTraceImport;
extern const Command kNetlab;
extern const Command kExecute;
extern const Command kExecuteAgent;
extern const Command kCompare;
extern const Command kCalibrate;
extern const Command kTwin;
extern const Command kAnnotate;
extern const Command kAdvise;

std::span<const Command* const> commands() {
  static const std::array kCommands = {
      &kRun,        &kPlan,        &kSimulate, &kValidate,    &kDiff,
      &kInit,       &kList,        &kSchema,   &kMixedLength, &kSwitch,
      &kImport,     &kExport,      &kReport,   &kReplay,      &kTraceGenerate,
      &kTraceStats, &kTraceImport, &kNetlab,   &kExecute,     &kExecuteAgent,
      &kCompare,    &kCalibrate,   &kTwin,     &kAnnotate,    &kAdvise};
  return kCommands;
}

std::span<const CommandGroup> command_groups() {
  static constexpr std::array kGroups = {
      CommandGroup{"trace", "Traces of failures and spot nodes: draw, import, count",
                   "trace generate spot --gpus 64 --days 2 --seed 3"}};
  return kGroups;
}

}  // namespace orrery::tools
