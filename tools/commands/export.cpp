/// orrery export: a plan in the words of a trainer or of another simulator.
#include <fmt/format.h>

#include <stdexcept>

#include "experiments/study/checks.h"
#include "experiments/study/export_plan.h"
#include "tools/cli/command.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

experiments::TextResult export_for(const experiments::ExportSettings& settings,
                                   const experiments::Call& call) {
  try {
    return experiments::export_plan(settings, call);
  } catch (const experiments::NotExpressible& reasons) {
    throw std::runtime_error(fmt::format("{} cannot run this plan:\n{}",
                                         experiments::name_of_enum(settings.to), reasons.what()));
  }
}

}  // namespace

extern const Command kExport;
const Command kExport = command<export_for, print_text<experiments::ExportSettings>>(
    "export", "Write a plan as files of trainers and simulators",
    "export experiments/hetu/plans/c2.yaml --to megatron --cluster hetu_32h20 --model hetu_32b "
    "--sequence-length 4096",
    "Exit code 1: the target cannot run the plan; each reason is named.");

}  // namespace orrery::tools
