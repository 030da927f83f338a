#include "tools/commands/twin_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "calibration/compare/errors.h"
#include "models/config/csv.h"
#include "models/config/visitor.h"
#include "models/ir/wire.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/compare_report.h"

namespace orrery::tools {
namespace {

using calibration::Comparison;
using calibration::PredictedMeasured;

/// Means aimed at (docs/accuracy.md).
constexpr double kIterationTarget = 0.10;
constexpr double kTransferTarget = 0.15;
/// Share of disturbed ops above which a run's errors say more about the machine than about the
/// model.
constexpr double kDisturbedLimit = 0.05;

const char* set_of(const TwinResult& result) {
  if (!result.run.policy.empty()) return result.run.fit ? "recovery_fit" : "recovery";
  if (result.run.fit) return "fit";
  return result.run.seen.empty() ? "predict" : "seen";
}

const Comparison* final_of(const TwinResult& result) {
  return result.final && result.final->comparison ? &*result.final->comparison : nullptr;
}
const Comparison* raw_of(const TwinResult& result) {
  return result.raw && result.raw->comparison ? &*result.raw->comparison : nullptr;
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : std::string();
}

std::string pair_cells(const PredictedMeasured& time) {
  return fmt::format(",{},{},{}", number(time.predicted), number(time.measured),
                     number(time.error()));
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double disturbed_share(const TwinResult& result) {
  return result.final ? share(result.final->disturbed_ops, result.final->compute_ops) : 0;
}

PredictedMeasured fullest(const Comparison& comparison) {
  PredictedMeasured out;
  for (const calibration::MemoryRow& row : comparison.memory) {
    if (row.bytes.measured > out.measured) out = row.bytes;
  }
  return out;
}

/// A quantity of a comparison of which errors are counted.
struct Metric {
  std::string name;
  std::optional<double> target;
  std::function<std::optional<double>(const TwinResult&)> error;
};

std::vector<Metric> metrics() {
  const auto of = [](auto error) {
    return [error](const TwinResult& result) -> std::optional<double> {
      const Comparison* comparison = final_of(result);
      if (comparison == nullptr) return std::nullopt;
      return error(*comparison);
    };
  };
  std::vector<Metric> out = {
      {"iteration", kIterationTarget, of([](const Comparison& c) { return c.iteration.error(); })},
      {"iteration_micro_benchmarks_only", std::nullopt,
       [](const TwinResult& result) -> std::optional<double> {
         const Comparison* comparison = raw_of(result);
         if (comparison == nullptr) return std::nullopt;
         return comparison->iteration.error();
       }},
      {"transfers", kTransferTarget,
       [](const TwinResult& result) -> std::optional<double> {
         const Comparison* comparison = final_of(result);
         if (comparison == nullptr || comparison->transfers.measured <= 0) return std::nullopt;
         return comparison->transfers.error();
       }},
      {"peak_memory", std::nullopt, of([](const Comparison& c) { return fullest(c).error(); })},
      {"recovery_total", std::nullopt,
       [](const TwinResult& result) -> std::optional<double> {
         const auto total = total_of(result.phases);
         if (!total || !total->predicted) return std::nullopt;
         return PredictedMeasured{*total->predicted, total->measured}.error();
       }},
  };
  const char* components[] = {"forward",       "backward",  "tensor_parallel", "pipeline",
                              "data_parallel", "optimizer", "bubble"};
  for (std::size_t i = 0; i < std::size(components); ++i) {
    out.push_back({fmt::format("{}_share_of_iteration", components[i]), std::nullopt,
                   of([i](const Comparison& c) { return c.components[i].of_iteration; })});
  }
  return out;
}

/// A line of the error table, and how far the machine took part in it.
struct TwinErrorLine {
  calibration::ErrorSummary errors;
  double disturbed = 0;  ///< Share of the compute ops of its runs.
};

std::vector<TwinErrorLine> error_lines(const TwinSummary& summary) {
  std::vector<TwinErrorLine> lines;
  for (const char* set : {"predict", "seen", "fit", "recovery"}) {
    for (const Metric& metric : metrics()) {
      std::vector<double> errors;
      std::string worst;
      double largest = -1;
      std::int64_t disturbed = 0, ops = 0;
      for (const TwinResult& result : summary.results) {
        if (std::string(set_of(result)) != set || !result.same_as.empty()) continue;
        const auto error = metric.error(result);
        if (!error || !std::isfinite(*error)) continue;
        errors.push_back(*error);
        if (result.final) disturbed += result.final->disturbed_ops;
        if (result.final) ops += result.final->compute_ops;
        if (std::abs(*error) > largest) {
          largest = std::abs(*error);
          worst = result.run.name;
        }
      }
      if (errors.empty()) continue;
      calibration::ErrorSummary line = calibration::summarize_errors(set, metric.name, errors);
      line.worst = worst;
      line.target = metric.target;
      lines.push_back({line, share(disturbed, ops)});
    }
  }
  return lines;
}

std::string runs_table(const TwinSummary& summary) {
  Table table;
  table.column("run").column("set").column("schedule").number("predicted ms");
  table.number("measured ms").number("error").number("benchmarks only").number("transfers");
  table.number("disturbed").column("");
  for (const TwinResult& result : summary.results) {
    const Comparison* comparison = final_of(result);
    if (comparison == nullptr) continue;
    const Comparison* raw = raw_of(result);
    table.row({result.run.name, set_of(result), result.schedule,
               grouped(1e3 * comparison->iteration.predicted, 1),
               grouped(1e3 * comparison->iteration.measured, 1),
               error_cell(comparison->iteration.error()),
               raw == nullptr ? std::string("-") : error_cell(raw->iteration.error()),
               comparison->transfers.measured > 0 ? error_cell(comparison->transfers.error())
                                                  : std::string("-"),
               fmt::format("{:.1f} %", 100 * disturbed_share(result)),
               result.same_as.empty() ? std::string()
                                      : fmt::format("the program of {}", result.same_as)});
  }
  return table.text(0, colors());
}

/// Which runs are in no mean of predicted runs, and why.
std::string counted_text(const TwinSummary& summary) {
  std::string text;
  for (const TwinResult& result : summary.results) {
    if (!result.run.seen.empty() && final_of(result) != nullptr) {
      text += fmt::format("{} is no unseen run: {}\n", result.run.name, result.run.seen);
    }
  }
  const bool twice = std::any_of(summary.results.begin(), summary.results.end(),
                                 [](const TwinResult& result) { return !result.same_as.empty(); });
  if (twice) text += "A program that ran twice counts once in the errors below.\n";
  return text;
}

/// Says so where the machine was not quiet; "" where it was.
std::string disturbed_text(const TwinSummary& summary) {
  std::size_t compared = 0, over = 0;
  const TwinResult* worst = nullptr;
  for (const TwinResult& result : summary.results) {
    if (final_of(result) == nullptr) continue;
    ++compared;
    if (disturbed_share(result) > kDisturbedLimit) ++over;
    if (worst == nullptr || disturbed_share(result) > disturbed_share(*worst)) worst = &result;
  }
  if (over == 0) return "";
  return fmt::format(
      "More than {:.0f} % of the ops were disturbed in {} of {} (at most {:.1f} %: {}): they "
      "waited "
      "for a core that something else had, and the errors say more about the machine than about "
      "the model.\n",
      100 * kDisturbedLimit, over, counted(compared, "run"), 100 * disturbed_share(*worst),
      worst->run.name);
}

std::vector<ComparedPhase> with_total(std::vector<ComparedPhase> phases) {
  if (const auto total = total_of(phases)) phases.push_back(*total);
  return phases;
}

std::string phases_table(const TwinSummary& summary) {
  Table table;
  table.column("run").column("set").column("policy").column("phase").number("predicted s");
  table.number("measured s").number("error");
  for (const TwinResult& result : summary.results) {
    for (const ComparedPhase& phase : with_total(result.phases)) {
      table.row({result.run.name, set_of(result), result.run.policy, phase.phase,
                 phase.predicted ? seconds_cell(*phase.predicted) : std::string("-"),
                 seconds_cell(phase.measured),
                 phase.predicted
                     ? error_cell(PredictedMeasured{*phase.predicted, phase.measured}.error())
                     : std::string("-")});
    }
  }
  return table.empty() ? "" : fmt::format("\n{}", section("Recoveries", table.text(0, colors())));
}

std::string parameters_text(const TwinSummary& summary) {
  const calibration::PassFactors& f = summary.parameters.factors;
  std::string text = fmt::format(
      "forward x {:.4f} ({} ops), backward x {:.4f} ({} ops), optimizer x {:.4f} ({} ops)\n",
      f.forward, f.forward_ops, f.backward, f.backward_ops, f.optimizer, f.optimizer_ops);
  for (const ir::PhaseTime& phase : summary.parameters.phases) {
    text += fmt::format("{} {} s ({})\n", phase.phase, seconds_cell(phase.time.value),
                        counted(static_cast<std::size_t>(phase.provenance.samples), "run"));
  }
  return text;
}

std::string problems_text(const TwinSummary& summary) {
  std::string text;
  for (const TwinResult& result : summary.results) {
    if (!result.problem.empty()) {
      text += fmt::format("{}: {}\n", result.run.name, result.problem);
    }
  }
  return text.empty() ? "" : fmt::format("\n{}", section("Without a comparison", text));
}

struct TwinErrorRecord {
  std::string set;
  std::string metric;
  int rows = 0;
  double mean = 0;
  double median = 0;
  double max = 0;
  double bias = 0;
  std::string worst;
  double disturbed_share = 0;
};
void describe(config::Visitor& v, TwinErrorRecord& record) {
  v.required("set", record.set, "");
  v.required("metric", record.metric, "");
  v.required("rows", record.rows, "");
  v.required("mean", record.mean, "of |error|, relative");
  v.required("median", record.median, "");
  v.required("max", record.max, "");
  v.required("bias", record.bias, "mean signed error");
  v.required("worst", record.worst, "run with the largest");
  v.required("disturbed_share", record.disturbed_share, "of the ops of these runs");
}

struct TwinRunRecord {
  std::string run;
  std::string set;
  std::string problem;
  double predicted_seconds = 0;
  double measured_seconds = 0;
  double disturbed_share = 0;
  std::string same_program_as;
  std::string seen;
};
void describe(config::Visitor& v, TwinRunRecord& record) {
  v.required("run", record.run, "");
  v.required("set", record.set, "");
  v.required("problem", record.problem, "");
  v.required("predicted_seconds", record.predicted_seconds, "of an iteration");
  v.required("measured_seconds", record.measured_seconds, "");
  v.required("disturbed_share", record.disturbed_share, "of its ops");
  v.required("same_program_as", record.same_program_as, "run; then it is in no error");
  v.required("seen", record.seen, "why it is no unseen run");
}

struct TwinDocument {
  std::string name;
  std::string network;
  std::vector<TwinErrorRecord> errors;
  std::vector<TwinRunRecord> runs;
};
void describe(config::Visitor& v, TwinDocument& document) {
  v.title("Twin");
  v.required("name", document.name, "");
  v.required("network", document.network, "netlab or loopback");
  v.required("errors", document.errors, "");
  v.required("runs", document.runs, "");
}

}  // namespace

void mark_equal_programs(TwinSummary& summary) {
  std::map<std::string, std::string> first;  // program hash -> run
  for (const bool known : {true, false}) {
    for (TwinResult& result : summary.results) {
      const bool is_known = result.run.fit || !result.run.seen.empty();
      if (!result.run.policy.empty() || is_known != known || final_of(result) == nullptr) continue;
      const auto [same, fresh] =
          first.emplace(ir::program_hash(result.final->program), result.run.name);
      if (!fresh) result.same_as = same->second;
    }
  }
}

std::string twin_csv(const TwinSummary& summary) {
  std::string text =
      "run,set,source,schedule,network,status,problem,same_program_as,ranks,steps,"
      "iteration_predicted_s,"
      "iteration_measured_s,iteration_error,raw_predicted_s,raw_measured_s,raw_error,"
      "transfers_predicted_s,transfers_measured_s,transfers_error,transfer_mean_error,"
      "peak_memory_predicted_bytes,peak_memory_measured_bytes,peak_memory_error,disturbed_share,"
      "shortest_step_s,longest_step_s";
  for (const char* name : {"forward", "backward", "tensor_parallel", "pipeline", "data_parallel",
                           "optimizer", "bubble"}) {
    text += fmt::format(",{0}_predicted_s,{0}_measured_s,{0}_of_iteration", name);
  }
  text += "\n";
  for (const TwinResult& result : summary.results) {
    const Comparison* comparison = final_of(result);
    const Comparison* raw = raw_of(result);
    text +=
        fmt::format("{},{},{},{},{},{},{},{}", result.run.name, set_of(result), result.run.source,
                    result.schedule, summary.loopback ? "loopback" : "netlab",
                    comparison != nullptr         ? "ok"
                    : !result.run.skipped.empty() ? "skipped"
                                                  : "failed",
                    config::csv_cell(result.problem), result.same_as);
    if (comparison == nullptr) {
      text += std::string(39, ',') + "\n";
      continue;
    }
    text += fmt::format(",{},{}", result.final->program.ranks.size(), comparison->steps);
    text += pair_cells(comparison->iteration);
    text += raw == nullptr ? std::string(",,,") : pair_cells(raw->iteration);
    text +=
        fmt::format("{},{}", pair_cells(comparison->transfers), number(comparison->transfer_error));
    text += pair_cells(fullest(*comparison));
    text += fmt::format(",{},{},{}", number(disturbed_share(result)),
                        number(comparison->shortest_step), number(comparison->longest_step));
    for (const calibration::ComponentRow& row : comparison->components) {
      text += fmt::format(",{},{},{}", number(row.seconds.predicted), number(row.seconds.measured),
                          number(row.of_iteration));
    }
    text += "\n";
  }
  return text;
}

std::string phases_csv(const TwinSummary& summary) {
  std::string text = "run,set,policy,phase,predicted_s,measured_s,error\n";
  for (const TwinResult& result : summary.results) {
    for (const ComparedPhase& phase : with_total(result.phases)) {
      const double predicted = phase.predicted.value_or(NAN);
      text += fmt::format("{},{},{},{},{},{},{}\n", result.run.name, set_of(result),
                          result.run.policy, phase.phase, number(predicted), number(phase.measured),
                          number(PredictedMeasured{predicted, phase.measured}.error()));
    }
  }
  return text;
}

std::string twin_errors_csv(const TwinSummary& summary) {
  const std::vector<TwinErrorLine> lines = error_lines(summary);
  std::vector<calibration::ErrorSummary> plain;
  for (const TwinErrorLine& line : lines) plain.push_back(line.errors);
  // A line each, the header first: names have no line breaks.
  std::istringstream rows(calibration::errors_csv(fmt::format("twin/{}", summary.name), plain));
  std::string text, row;
  for (std::size_t i = 0; std::getline(rows, row); ++i) {
    text += fmt::format("{},{}\n", row,
                        i == 0 ? std::string("disturbed_share") : number(lines[i - 1].disturbed));
  }
  return text;
}

std::string twin_parameters_csv(const TwinSummary& summary) {
  std::string text = "name,unit,value,samples,rule\n";
  const calibration::PassFactors& f = summary.parameters.factors;
  for (const auto& [name, value, ops] : {std::tuple("forward", f.forward, f.forward_ops),
                                         std::tuple("backward", f.backward, f.backward_ops),
                                         std::tuple("optimizer", f.optimizer, f.optimizer_ops)}) {
    text += fmt::format("{},factor,{},{},median over ops of measured / predicted own time\n", name,
                        number(value), ops);
  }
  for (const ir::PhaseTime& phase : summary.parameters.phases) {
    text += fmt::format("{},s,{},{},median over recoveries\n", phase.phase,
                        number(phase.time.value), phase.provenance.samples);
  }
  return text;
}

std::string twin_text(const TwinSummary& summary) {
  Table errors;
  errors.column("set").column("metric").number("runs").number("mean").number("median");
  errors.number("max").number("bias").number("target").number("disturbed").column("worst");
  for (const TwinErrorLine& line : error_lines(summary)) {
    const calibration::ErrorSummary& e = line.errors;
    const auto percent = [](double value) { return fmt::format("{:.1f} %", 100 * value); };
    errors.row({e.set, e.metric, std::to_string(e.rows), percent(e.mean), percent(e.median),
                percent(e.max), error_cell(e.bias),
                e.target ? percent(*e.target) : std::string("-"), percent(line.disturbed),
                e.worst});
  }
  std::string text =
      section(fmt::format("Runs ({})", summary.loopback ? "over loopback: the network is not the "
                                                          "cluster's"
                                                        : "on the emulated network"),
              runs_table(summary) + counted_text(summary)) +
      fmt::format("\n{}", section("Fitted on the runs of set 'fit'", parameters_text(summary))) +
      phases_table(summary) + problems_text(summary);
  if (!errors.empty()) {
    text +=
        fmt::format("\n{}", section("Errors", errors.text(0, colors()) + disturbed_text(summary)));
  }
  return text;
}

std::string twin_json(const TwinSummary& summary) {
  TwinDocument document;
  document.name = summary.name;
  document.network = summary.loopback ? "loopback" : "netlab";
  for (const TwinErrorLine& line : error_lines(summary)) {
    const calibration::ErrorSummary& e = line.errors;
    document.errors.push_back(
        {e.set, e.metric, e.rows, e.mean, e.median, e.max, e.bias, e.worst, line.disturbed});
  }
  for (const TwinResult& result : summary.results) {
    const Comparison* comparison = final_of(result);
    document.runs.push_back({result.run.name, set_of(result), result.problem,
                             comparison == nullptr ? 0 : comparison->iteration.predicted,
                             comparison == nullptr ? 0 : comparison->iteration.measured,
                             disturbed_share(result), result.same_as, result.run.seen});
  }
  return to_json(document);
}

}  // namespace orrery::tools
