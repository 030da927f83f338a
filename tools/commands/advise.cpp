/// orrery advise: which plan, policy, checkpoint interval and spares for this cluster, and why.
#include "experiments/study/robust_plan.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/commands/robust_report.h"

namespace orrery::tools {
namespace {

void print_advice(const experiments::RobustResult& result,
                  const experiments::RobustSettings& settings) {
  print(advice_text(result));
  if (settings.output && result.plan) print("plan: " + *settings.output + "\n");
}

}  // namespace

extern const Command kAdvise;
const Command kAdvise = command<experiments::robust_plan, print_advice>(
    "advise", "Spares, checkpoint interval, recovery policy and plan for a cluster that fails",
    "advise --cluster a100_8 --model gpt3_1.3b --global-batch 64 --sequence-length 1024 --trace "
    "llama3 --mtbf 6h --days 2",
    "Exit code 1: no policy can run.");

}  // namespace orrery::tools
