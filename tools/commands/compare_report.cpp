#include "tools/commands/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/config/visitor.h"
#include "tools/commands/json.h"
#include "tools/commands/output.h"
#include "tools/table.h"

namespace orrery::tools {
namespace {

using calibration::PredictedMeasured;

constexpr std::size_t kPricesShown = 12;

/// What `--json` prints.
struct PairRecord {
  std::string name;
  double predicted = 0;
  double measured = 0;
  double error = 0;
};
void describe(config::Visitor& v, PairRecord& pair) {
  v.required("name", pair.name, "");
  v.required("predicted", pair.predicted, "seconds, or bytes");
  v.required("measured", pair.measured, "");
  v.required("error", pair.error, "predicted / measured - 1; null: nothing was measured");
}

struct MemoryRecord {
  int rank = 0;
  int device = 0;
  double predicted_bytes = 0;
  double measured_bytes = 0;
  double error = 0;
};
void describe(config::Visitor& v, MemoryRecord& memory) {
  v.required("rank", memory.rank, "");
  v.required("device", memory.device, "");
  v.required("predicted_bytes", memory.predicted_bytes, "peak");
  v.required("measured_bytes", memory.measured_bytes, "peak");
  v.required("error", memory.error, "");
}

struct OpRecord {
  int rank = 0;
  std::string what;
  std::int64_t ops = 0;
  double predicted_seconds = 0;
  double measured_seconds = 0;
  double share = 0;
};
void describe(config::Visitor& v, OpRecord& op) {
  v.required("rank", op.rank, "");
  v.required("what", op.what, "");
  v.required("ops", op.ops, "that differ in the micro-batch only");
  v.required("predicted_seconds", op.predicted_seconds, "");
  v.required("measured_seconds", op.measured_seconds, "");
  v.required("share", op.share, "of the sum of all |differences|");
}

struct PhaseRecord {
  std::string phase;
  std::optional<double> predicted_seconds;
  double measured_seconds = 0;
};
void describe(config::Visitor& v, PhaseRecord& phase) {
  v.required("phase", phase.phase, "");
  v.optional("predicted_seconds", phase.predicted_seconds, "");
  v.required("measured_seconds", phase.measured_seconds, "");
}

struct GenerationRecord {
  std::int64_t generation = 0;
  std::string problem;
  std::int64_t steps = 0;
  double shortest_step = 0;
  double longest_step = 0;
  double transfer_error = 0;
  double op_bias = 0;
  std::int64_t compute_ops = 0;
  std::int64_t disturbed_ops = 0;
  std::vector<PairRecord> times;
  std::vector<MemoryRecord> memory;
  std::vector<OpRecord> worst_ops;
  std::vector<PhaseRecord> phases;
  std::vector<std::string> prices;
};
void describe(config::Visitor& v, GenerationRecord& generation) {
  v.required("generation", generation.generation, "");
  v.required("problem", generation.problem, "why there is no comparison of steps");
  v.required("steps", generation.steps, "that count");
  v.required("shortest_step_seconds", generation.shortest_step, "measured");
  v.required("longest_step_seconds", generation.longest_step, "measured");
  v.required("transfer_error", generation.transfer_error, "mean of |error|, weighted by time");
  v.required("op_bias", generation.op_bias, "of the sum of all ops");
  v.required("compute_ops", generation.compute_ops, "executed");
  v.required("disturbed_ops", generation.disturbed_ops, "of them longer than they should");
  v.required("times", generation.times, "iteration, components, transfers");
  v.required("memory", generation.memory, "");
  v.required("worst_ops", generation.worst_ops, "");
  v.required("phases", generation.phases, "of the recovery that brought it up");
  v.required("prices", generation.prices, "where predicted times come from");
}

struct CompareDocument {
  std::string run;
  std::vector<GenerationRecord> generations;
};
void describe(config::Visitor& v, CompareDocument& document) {
  v.title("Predicted against measured");
  v.required("run", document.run, "");
  v.required("generations", document.generations, "");
}

std::vector<std::pair<std::string, PredictedMeasured>> times_of(
    const calibration::Comparison& comparison) {
  std::vector<std::pair<std::string, PredictedMeasured>> out = {
      {"iteration", comparison.iteration}};
  for (const calibration::ComponentRow& row : comparison.components) {
    out.emplace_back(row.name, row.seconds);
  }
  out.emplace_back("transfers", comparison.transfers);
  return out;
}

std::string milliseconds(double seconds) { return grouped(1e3 * seconds, 2); }
std::string mib(double bytes) { return grouped(bytes / 0x1p20, 2); }

std::string times_table(const calibration::Comparison& comparison) {
  Table table;
  table.column("").number("predicted ms").number("measured ms").number("error");
  table.number("of the iteration");
  const auto row = [&](const std::string& name, const PredictedMeasured& time, double part) {
    table.row({name, milliseconds(time.predicted), milliseconds(time.measured),
               error_cell(time.error()), error_cell(part)});
  };
  row("iteration", comparison.iteration, comparison.iteration.error());
  for (const calibration::ComponentRow& component : comparison.components) {
    row(component.name, component.seconds, component.of_iteration);
  }
  return table.text(0, colours());
}

std::string memory_table(const calibration::Comparison& comparison) {
  Table table;
  table.number("rank").number("device").number("predicted MiB").number("measured MiB");
  table.number("error");
  for (const calibration::MemoryRow& row : comparison.memory) {
    table.row({std::to_string(row.rank.value), std::to_string(row.device.value),
               mib(row.bytes.predicted), mib(row.bytes.measured), error_cell(row.bytes.error())});
  }
  return table.empty() ? "" : fmt::format("\n{}", section("Peak memory", table.text(0, colours())));
}

std::string ops_table(const calibration::Comparison& comparison) {
  Table table;
  table.number("rank").column("op").number("ops").number("predicted ms").number("measured ms");
  table.number("share of the error");
  for (const calibration::OpRow& row : comparison.worst) {
    table.row({std::to_string(row.rank.value), row.what, std::to_string(row.ops),
               milliseconds(row.seconds.predicted), milliseconds(row.seconds.measured),
               fmt::format("{:.1f} %", 100 * row.share)});
  }
  return table.empty()
             ? ""
             : fmt::format("\n{}", section("Ops that are furthest off", table.text(0, colours())));
}

std::string phases_table(const GenerationComparison& generation) {
  Table table;
  table.column("phase").number("predicted s").number("measured s").number("error");
  for (const ComparedPhase& phase : generation.phases) {
    table.row({phase.phase, phase.predicted ? seconds_cell(*phase.predicted) : std::string("-"),
               seconds_cell(phase.measured),
               phase.predicted
                   ? error_cell(PredictedMeasured{*phase.predicted, phase.measured}.error())
                   : std::string("-")});
  }
  return table.empty() ? "" : fmt::format("\n{}", section("Recovery", table.text(0, colours())));
}

std::string prices_text(const std::vector<std::string>& prices) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kPricesShown, prices.size()); ++i) {
    text += prices[i] + "\n";
  }
  if (prices.size() > kPricesShown) {
    text += fmt::format("and {}\n", counted(prices.size() - kPricesShown, "line"));
  }
  return fmt::format("\n{}", section("Where predicted times come from", text));
}

std::string generation_text(const GenerationComparison& generation) {
  const std::string name = fmt::format("Generation {}", generation.generation);
  if (!generation.comparison) {
    return section(name, generation.problem + "\n") + phases_table(generation);
  }
  const calibration::Comparison& comparison = *generation.comparison;
  std::string body = times_table(comparison);
  body +=
      fmt::format("{} counted, {} to {} ms long; transfers {} ({:.1f} % mean |error|); ops {}\n",
                  counted(static_cast<std::size_t>(comparison.steps), "step"),
                  milliseconds(comparison.shortest_step), milliseconds(comparison.longest_step),
                  error_cell(comparison.transfers.error()), 100 * comparison.transfer_error,
                  error_cell(comparison.op_bias));
  if (generation.compute_ops > 0) {
    body += fmt::format(
        "disturbed: {} of {} compute ops ({:.1f} %) took longer than their device allows\n",
        generation.disturbed_ops, generation.compute_ops,
        100.0 * static_cast<double>(generation.disturbed_ops) /
            static_cast<double>(generation.compute_ops));
  }
  return section(name, body) + memory_table(comparison) + ops_table(comparison) +
         phases_table(generation) + prices_text(generation.prices);
}

GenerationRecord record_of(const GenerationComparison& generation) {
  GenerationRecord record;
  record.generation = generation.generation;
  record.problem = generation.problem;
  record.compute_ops = generation.compute_ops;
  record.disturbed_ops = generation.disturbed_ops;
  record.prices = generation.prices;
  for (const ComparedPhase& phase : generation.phases) {
    record.phases.push_back({phase.phase, phase.predicted, phase.measured});
  }
  if (!generation.comparison) return record;
  const calibration::Comparison& comparison = *generation.comparison;
  record.steps = comparison.steps;
  record.shortest_step = comparison.shortest_step;
  record.longest_step = comparison.longest_step;
  record.transfer_error = comparison.transfer_error;
  record.op_bias = comparison.op_bias;
  for (const auto& [name, time] : times_of(comparison)) {
    record.times.push_back({name, time.predicted, time.measured, time.error()});
  }
  for (const calibration::MemoryRow& row : comparison.memory) {
    record.memory.push_back({row.rank.value, row.device.value, row.bytes.predicted,
                             row.bytes.measured, row.bytes.error()});
  }
  for (const calibration::OpRow& row : comparison.worst) {
    record.worst_ops.push_back({row.rank.value, row.what, row.ops, row.seconds.predicted,
                                row.seconds.measured, row.share});
  }
  return record;
}

/// The counting step of median length.
const calibration::LoggedStep& median_step(const std::vector<calibration::LoggedStep>& steps,
                                           int warm_up) {
  const std::size_t first =
      std::min(static_cast<std::size_t>(std::max(0, warm_up)), steps.size() - 1);
  std::vector<std::size_t> order;
  for (std::size_t k = first; k < steps.size(); ++k) order.push_back(k);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].end - steps[a].start < steps[b].end - steps[b].start;
  });
  return steps[order[order.size() / 2]];
}

}  // namespace

std::string error_cell(double error) {
  return std::isfinite(error) ? fmt::format("{:+.1f} %", 100 * error) : "-";
}

std::string comparison_text(const RunComparison& comparison) {
  std::string text;
  const LoadedInputs& inputs = comparison.inputs;
  if (inputs.inputs.network == "loopback" && inputs.run.cluster.nodes.size() > 1) {
    text += fmt::format(
        "The ranks talked over loopback: links of '{}' were not there, and predicted transfers are "
        "theirs.\n",
        inputs.run.cluster.name);
  }
  for (const GenerationComparison& generation : comparison.generations) {
    if (!text.empty()) text += '\n';
    text += generation_text(generation);
  }
  return text;
}

std::string comparison_json(const std::string& run, const RunComparison& comparison) {
  CompareDocument document;
  document.run = run;
  for (const GenerationComparison& generation : comparison.generations) {
    document.generations.push_back(record_of(generation));
  }
  return to_json(document);
}

std::string timeline_csv(const GenerationComparison& generation, int warm_up) {
  std::string text = "side,rank,device,step,stream,kind,purpose,start_s,end_s,inner_s\n";
  const auto add = [&](const char* side, const ir::RunLog& log, int skip) {
    const auto found = calibration::logged_steps(generation.program, log);
    const auto* steps = std::get_if<std::vector<calibration::LoggedStep>>(&found);
    if (steps == nullptr) return;
    const calibration::LoggedStep& step = median_step(*steps, skip);
    for (const ir::Span& span : step.spans) {
      const ir::Op& op = generation.program.op(span.op);
      const auto seconds = [&](Instant at) { return to_seconds(at - step.start).value; };
      text += fmt::format("{},{},{},{},{},{},{},{:.9f},{:.9f},{:.9f}\n", side, op.rank.value,
                          generation.program.ranks[op.rank.index()].device.value, step.number,
                          ir::name_of(op.stream), ir::name_of(op.kind), ir::name_of(op.purpose),
                          seconds(span.start), seconds(span.end), to_seconds(span.inner).value);
    }
  };
  add("predicted", generation.predicted, 0);
  add("measured", generation.measured, warm_up);
  return text;
}

}  // namespace orrery::tools
