#include "experiments/execution/twin_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>
#include <tuple>

#include "models/config/csv.h"
#include "models/ir/wire.h"

namespace orrery::experiments {
namespace {

using calibration::Comparison;
using calibration::PredictedMeasured;

/// Means aimed at (docs/accuracy.md).
constexpr double kIterationTarget = 0.10;
constexpr double kTransferTarget = 0.15;

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

/// Null where the comparison has none of that name.
const calibration::ComponentRow* component_of(const Comparison& comparison,
                                              const std::string& name) {
  for (const calibration::ComponentRow& row : comparison.components) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

PredictedMeasured fullest(const Comparison& comparison) {
  PredictedMeasured out;
  for (const calibration::MemoryRow& row : comparison.memory) {
    if (row.bytes.measured > out.measured) out = row.bytes;
  }
  return out;
}

constexpr const char* kZero = "zero";

/// Names of components, in the order of a comparison: "zero" only where a run has gathers of it.
std::vector<std::string> component_names(const TwinSummary& summary) {
  std::vector<std::string> names = {"forward",       "backward",  "tensor_parallel", "pipeline",
                                    "data_parallel", "optimizer", "bubble"};
  const bool any =
      std::any_of(summary.results.begin(), summary.results.end(), [](const TwinResult& result) {
        return result.predicted() != nullptr && component_of(*result.predicted(), kZero) != nullptr;
      });
  if (any) names.insert(names.begin() + 3, kZero);
  return names;
}

/// A quantity of a comparison of which errors are counted.
struct Metric {
  std::string name;
  std::optional<double> target;
  std::function<std::optional<double>(const TwinResult&)> error;
};

std::vector<Metric> metrics(const TwinSummary& summary) {
  const auto of = [](auto error) {
    return [error](const TwinResult& result) -> std::optional<double> {
      const Comparison* comparison = result.predicted();
      if (comparison == nullptr) return std::nullopt;
      return error(*comparison);
    };
  };
  std::vector<Metric> out = {
      {"iteration", kIterationTarget, of([](const Comparison& c) { return c.iteration.error(); })},
      {"iteration_micro_benchmarks_only", std::nullopt,
       [](const TwinResult& result) -> std::optional<double> {
         const Comparison* comparison = result.by_benchmarks();
         if (comparison == nullptr) return std::nullopt;
         return comparison->iteration.error();
       }},
      {"transfers", kTransferTarget,
       [](const TwinResult& result) -> std::optional<double> {
         const Comparison* comparison = result.predicted();
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
  for (const std::string& name : component_names(summary)) {
    out.push_back({fmt::format("{}_share_of_iteration", name), std::nullopt,
                   of([name](const Comparison& c) -> std::optional<double> {
                     const calibration::ComponentRow* row = component_of(c, name);
                     if (row == nullptr) return std::nullopt;
                     return row->of_iteration;
                   })});
  }
  return out;
}

}  // namespace

const char* TwinResult::set() const {
  if (!run.policy.empty()) return run.fit ? "recovery_fit" : "recovery";
  if (run.fit) return "fit";
  return run.seen.empty() ? "predict" : "seen";
}

double TwinResult::disturbed_share() const {
  return final ? share(final->disturbed_ops, final->compute_ops) : 0;
}

const Comparison* TwinResult::predicted() const {
  return final && final->comparison ? &*final->comparison : nullptr;
}

const Comparison* TwinResult::by_benchmarks() const {
  return raw && raw->comparison ? &*raw->comparison : nullptr;
}

void describe(config::Visitor& v, TwinErrorLine& line) {
  calibration::ErrorSummary& errors = line.errors;
  v.required("set", errors.set, "");
  v.required("metric", errors.metric, "");
  v.required("rows", errors.rows, "");
  v.required("mean", errors.mean, "of |error|, relative");
  v.required("median", errors.median, "");
  v.required("max", errors.max, "");
  v.required("bias", errors.bias, "mean signed error");
  v.required("worst", errors.worst, "run with the largest");
  v.required("disturbed_share", line.disturbed, "of the ops of these runs");
}

void describe(config::Visitor& v, TwinResult& result) {
  std::string set = result.set();
  const Comparison* comparison = result.predicted();
  PredictedMeasured iteration = comparison == nullptr ? PredictedMeasured{} : comparison->iteration;
  double disturbed = result.disturbed_share();
  v.required("run", result.run.name, "");
  v.required("set", set, "");
  v.required("problem", result.problem, "");
  v.required("predicted_seconds", iteration.predicted, "of an iteration");
  v.required("measured_seconds", iteration.measured, "");
  v.required("disturbed_share", disturbed, "of its ops");
  v.required("same_program_as", result.same_as, "run; then it is in no error");
  v.required("seen", result.run.seen, "why it is no unseen run");
}

void describe(config::Visitor& v, TwinSummary& summary) {
  std::string network = summary.loopback ? "loopback" : "netlab";
  std::vector<TwinErrorLine> errors = error_lines(summary);
  v.title("Twin");
  v.required("name", summary.name, "");
  v.required("network", network, "netlab or loopback");
  v.required("errors", errors, "");
  v.required("runs", summary.results, "");
}

int exit_status(const TwinSummary& summary) { return summary.failed == 0 ? 0 : 1; }

std::vector<TwinErrorLine> error_lines(const TwinSummary& summary) {
  std::vector<TwinErrorLine> lines;
  for (const char* set : {"predict", "seen", "fit", "recovery"}) {
    for (const Metric& metric : metrics(summary)) {
      std::vector<double> errors;
      std::string worst;
      double largest = -1;
      std::int64_t disturbed = 0, ops = 0;
      for (const TwinResult& result : summary.results) {
        if (std::string(result.set()) != set || !result.same_as.empty()) continue;
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

std::vector<ComparedPhase> with_total(std::vector<ComparedPhase> phases) {
  if (const auto total = total_of(phases)) phases.push_back(*total);
  return phases;
}

void mark_equal_programs(TwinSummary& summary) {
  std::map<std::string, std::string> first;  // program hash -> run
  for (const bool known : {true, false}) {
    for (TwinResult& result : summary.results) {
      const bool is_known = result.run.fit || !result.run.seen.empty();
      if (!result.run.policy.empty() || is_known != known || result.predicted() == nullptr)
        continue;
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
  const std::vector<std::string> components = component_names(summary);
  for (const std::string& name : components) {
    text += fmt::format(",{0}_predicted_s,{0}_measured_s,{0}_of_iteration", name);
  }
  text += "\n";
  for (const TwinResult& result : summary.results) {
    const Comparison* comparison = result.predicted();
    const Comparison* raw = result.by_benchmarks();
    text += fmt::format("{},{},{},{},{},{},{},{}", result.run.name, result.set(), result.run.source,
                        result.schedule, summary.loopback ? "loopback" : "netlab",
                        comparison != nullptr         ? "ok"
                        : !result.run.skipped.empty() ? "skipped"
                                                      : "failed",
                        config::csv_cell(result.problem), result.same_as);
    if (comparison == nullptr) {
      text += std::string(18 + 3 * components.size(), ',') + "\n";
      continue;
    }
    text += fmt::format(",{},{}", result.final->program.ranks.size(), comparison->steps);
    text += pair_cells(comparison->iteration);
    text += raw == nullptr ? std::string(",,,") : pair_cells(raw->iteration);
    text +=
        fmt::format("{},{}", pair_cells(comparison->transfers), number(comparison->transfer_error));
    text += pair_cells(fullest(*comparison));
    text += fmt::format(",{},{},{}", number(result.disturbed_share()),
                        number(comparison->shortest_step), number(comparison->longest_step));
    for (const std::string& name : components) {
      const calibration::ComponentRow* found = component_of(*comparison, name);
      const calibration::ComponentRow row = found == nullptr ? calibration::ComponentRow{} : *found;
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
      text += fmt::format("{},{},{},{},{},{},{}\n", result.run.name, result.set(),
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

}  // namespace orrery::experiments
