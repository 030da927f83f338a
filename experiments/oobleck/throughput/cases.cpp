#include "experiments/oobleck/throughput/cases.h"

#include <array>
#include <stdexcept>

#include "traces/import/import.h"

namespace orrery::experiments {
namespace {

struct CaseTrace {
  int figure;
  const char* label;
  const char* file;
};
constexpr std::array kTraces = {CaseTrace{9, "6h", "6h.csv"},
                                CaseTrace{9, "1h", "1h.csv"},
                                CaseTrace{9, "30m", "30m.csv"},
                                CaseTrace{9, "10m", "10m.csv"},
                                CaseTrace{10, "p3", "scale_p3-trace.csv"},
                                CaseTrace{10, "gcp", "scale_gcp-trace.csv"}};

traces::Trace import_nodes(const std::string& path) {
  config::Diagnostics diagnostics;
  traces::Trace trace = traces::import_trace("oobleck", path, {}, diagnostics);
  if (!diagnostics.empty()) throw std::runtime_error(path + ": cannot be imported");
  return trace;
}

}  // namespace

std::vector<OobleckRun> run_cases(const std::string& data) {
  const std::string folder = data + "/traces/oobleck/";
  const auto tables = read_throughput(folder + "throughput.csv");
  std::vector<OobleckRun> runs;
  for (const CaseTrace& kind : kTraces) {
    const std::vector<NodeChange> changes = read_changes(folder + kind.file);
    const traces::Trace trace = import_nodes(folder + kind.file);
    for (const OobleckModel& model : oobleck_models()) {
      for (const OobleckSystem system :
           {OobleckSystem::bamboo, OobleckSystem::varuna, OobleckSystem::oobleck}) {
        if (system == OobleckSystem::bamboo && !model.bamboo_fits) continue;
        const NodeThroughput& table = tables.at({model.name, name_of(system)});
        const bool falls_back = kind.figure == 9 || model.spot_falls_back;
        runs.push_back({kind.figure, kind.label, model.label, system,
                        count_compat(model, system, table, changes, falls_back),
                        count_honest(model, system, table, trace)});
      }
    }
  }
  return runs;
}

}  // namespace orrery::experiments
