/// orrery trace: draws traces of failures and spot nodes, reads those of others, and says what is
/// in them (trace_stats.cpp).
#include "experiments/study/trace.h"

#include "tools/cli/command.h"
#include "tools/commands/tables.h"

namespace orrery::tools {

extern const Command kTraceGenerate;
const Command kTraceGenerate =
    command<experiments::generate_trace, print_text<experiments::TraceGenerateSettings>>(
        "trace generate", "Draw a trace of failures and spot nodes",
        "trace generate llama3 --cluster llama3_16384 --days 54 --seed 1 --set "
        "failures.slow.per_1000_gpu_days=0");

extern const Command kTraceImport;
const Command kTraceImport =
    command<experiments::import_traces, print_text<experiments::TraceImportSettings>>(
        "trace import", "Read traces of Bamboo, Oobleck, Parcae, AWS, GCP, SkyPilot",
        "trace import bamboo tests/traces/bamboo.csv --gpu-type V100-16GB");

}  // namespace orrery::tools
