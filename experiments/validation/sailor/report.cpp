#include "experiments/validation/sailor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "models/base/check.h"
#include "models/base/median.h"

namespace orrery::experiments {
namespace {

constexpr const char* kTime = "iteration_s";
constexpr const char* kMemory = "peak_memory_bytes";
constexpr const char* kFittedModel = "GPT-Neo-2.7";

bool on_gh200(const SailorPlan& plan) { return plan.cluster == "gh200"; }

std::optional<double> value_of(const std::optional<Seconds>& time) {
  return time ? std::optional(time->value) : std::nullopt;
}
std::optional<double> value_of(const std::optional<Bytes>& bytes) {
  return bytes ? std::optional(bytes->value) : std::nullopt;
}

/// Median of measured minus held over the rows that `kept` names.
FittedParameter fit_overhead(const std::vector<SailorRow>& rows) {
  std::vector<const SailorRow*> used;
  for (const SailorRow& row : rows) {
    if (row.plan->model == kFittedModel && row.plan->measured.peak_memory) used.push_back(&row);
  }
  FittedParameter parameter;
  parameter.name = "memory beyond what is simulated (GH-96)";
  parameter.unit = "bytes";
  if (used.empty()) return parameter;
  const auto beyond = [&](std::size_t i) {
    return (*used[i]->plan->measured.peak_memory - used[i]->prediction.held).value;
  };
  std::vector<double> all;
  for (std::size_t i = 0; i < used.size(); ++i) {
    all.push_back(beyond(i));
    parameter.fitted_on.push_back(used[i]->plan->id);
  }
  ORRERY_CHECK(enough_rows(1, used.size()), "one parameter on {} rows", used.size());
  parameter.value = median(all);
  if (used.size() < 2) return parameter;
  const auto errors =
      leave_one_out(used.size(), [&](const std::vector<std::size_t>& kept, std::size_t left_out) {
        std::vector<double> others;
        for (const std::size_t i : kept) others.push_back(beyond(i));
        const double measured = used[left_out]->plan->measured.peak_memory->value;
        return (used[left_out]->prediction.held.value + median(others) - measured) / measured;
      });
  parameter.leave_one_out = summarize("", kMemory, errors).mean;
  return parameter;
}

std::vector<ValidationRow> validation_rows(const std::vector<SailorRow>& rows,
                                           double overhead_bytes) {
  std::vector<ValidationRow> all;
  for (const SailorRow& row : rows) {
    const SailorPlan& plan = *row.plan;
    ValidationRow time;
    time.id = plan.id;
    time.set = set_of(plan);
    time.metric = kTime;
    time.predicted = row.prediction.iteration.value;
    time.measured = value_of(plan.measured.iteration);
    time.scored = plan.score;
    all.push_back(time);
    if (!on_gh200(plan)) continue;
    ValidationRow memory = std::move(time);
    memory.metric = kMemory;
    memory.predicted = row.prediction.held.value + overhead_bytes;
    memory.measured = value_of(plan.measured.peak_memory);
    memory.fitted = memory.measured && plan.model == kFittedModel;
    all.push_back(std::move(memory));
  }
  return all;
}

/// The same with the profile as it is.
std::vector<ValidationRow> rows_without_head(const std::vector<SailorRow>& rows,
                                             const std::string& suffix) {
  std::vector<ValidationRow> all;
  for (const SailorRow& row : rows) {
    if (!row.without_head) continue;
    ValidationRow time;
    time.id = row.plan->id;
    time.set = set_of(*row.plan) + suffix;
    time.metric = kTime;
    time.predicted = row.without_head->value;
    time.measured = value_of(row.plan->measured.iteration);
    time.scored = row.plan->score;
    all.push_back(std::move(time));
  }
  return all;
}

struct Aim {
  const char* set;
  const char* metric;
  double target;          ///< 0: none.
  double published_best;  ///< 0: none.
};
/// Targets of docs/accuracy.md. Published: smallest mean error of another simulator on all plans of
/// the set, ours to predict included (Sailor's own; of the rtx set rounded).
constexpr Aim kAims[] = {{"gh200 OPT-350", kTime, 0.06, 0.089},
                         {"gh200 OPT-350", kMemory, 0.05, 0.059},
                         {"gh200 GPT-Neo-2.7", kTime, 0, 0.185},
                         {"rtx OPT-350", kTime, 0.07, 0.10}};

std::vector<ErrorLine> main_lines(const std::vector<ValidationRow>& predictions,
                                  const std::vector<ValidationRow>& without_head) {
  std::vector<ErrorLine> lines;
  for (const Aim& aim : kAims) {
    ErrorLine line;
    line.errors = summarize(predictions, aim.set, aim.metric);
    if (aim.target > 0) line.target = aim.target;
    if (aim.published_best > 0) line.published_best = aim.published_best;
    lines.push_back(std::move(line));
  }
  if (!without_head.empty()) {
    lines.push_back(
        {summarize(without_head, without_head.front().set, kTime), std::nullopt, std::nullopt});
  }
  return lines;
}

std::vector<ErrorLine> group_lines(const std::vector<SailorRow>& rows,
                                   const std::vector<ValidationRow>& predictions) {
  std::map<std::string, const SailorPlan*> plans;
  for (const SailorRow& row : rows) plans[row.plan->id] = row.plan;
  std::map<std::tuple<std::string, std::string, std::string, int>, std::vector<ValidationRow>>
      groups;
  for (const ValidationRow& row : predictions) {
    const SailorPlan& plan = *plans.at(row.id);
    const std::pair<const char*, int> keys[] = {{"pp", static_cast<int>(plan.stages.size())},
                                                {"dp", plan.data_parallel},
                                                {"tp", plan.tensor_parallel()},
                                                {"micro-batch", plan.micro_batch}};
    for (const auto& [name, value] : keys) {
      groups[{row.metric, row.set, name, value}].push_back(row);
    }
  }
  std::vector<ErrorLine> lines;
  for (auto& [key, members] : groups) {
    const auto& [metric, set, name, value] = key;
    const std::string group = fmt::format("{}, {} {}", set, name, value);
    for (ValidationRow& row : members) row.set = group;
    ErrorLine line;
    line.errors = summarize(members, group, metric);
    const bool is_part = line.errors.rows < summarize(predictions, set, metric).rows;
    if (line.errors.rows > 0 && is_part) lines.push_back(std::move(line));
  }
  return lines;
}

std::optional<Seconds> unsliced_extra(const SailorPlan& plan, const SailorData& data) {
  const std::size_t stages = plan.stages.size();
  if (!on_gh200(plan) || stages < 2) return std::nullopt;
  const int degree = plan.tensor_parallel();
  const Bytes whole = plan.micro_batch *
                      layer_memory(data, plan.model, degree, plan.stages.front().last_layer).output;
  for (const calibration::SailorBandwidth& row : data.tables.bandwidths) {
    if (!row.inter_node || row.sender_pairs != 1 || row.receiver_pairs != 1 ||
        row.sender_gpu != plan.stages.front().replicas.front().gpu ||
        row.receiver_gpu != row.sender_gpu) {
      continue;
    }
    const Bytes slice = whole / static_cast<double>(degree);
    const double crossings = stages > 2 ? 4 : 2;
    return crossings * (whole / calibration::sailor_rate(row, whole) -
                        slice / calibration::sailor_rate(row, slice));
  }
  return std::nullopt;
}

/// Signed errors of another source of values, on the rows that count for us.
ErrorSummary errors_of(const std::vector<SailorRow>& rows, const std::string& set,
                       const std::string& name, const char* metric,
                       const std::function<const SailorValue*(const SailorPlan&)>& value) {
  std::vector<double> errors;
  for (const SailorRow& row : rows) {
    const SailorPlan& plan = *row.plan;
    const SailorValue* other = value(plan);
    if (set_of(plan) != set || !plan.score || other == nullptr) continue;
    const bool time = metric == std::string(kTime);
    const auto measured =
        time ? value_of(plan.measured.iteration) : value_of(plan.measured.peak_memory);
    const auto estimate = time ? value_of(other->iteration) : value_of(other->peak_memory);
    if (measured && estimate) errors.push_back((*estimate - *measured) / *measured);
  }
  return summarize(fmt::format("{}, {}", set, name), metric, errors);
}

std::vector<ErrorLine> other_lines(const std::vector<SailorRow>& rows) {
  std::set<std::string> names;
  std::vector<std::string> sets;
  for (const SailorRow& row : rows) {
    for (const auto& other : row.plan->others) names.insert(other.first);
    const std::string set = set_of(*row.plan);
    if (std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(set);
  }
  std::vector<ErrorLine> lines;
  const auto add = [&](ErrorSummary errors) {
    if (errors.rows > 0) lines.push_back({std::move(errors), std::nullopt, std::nullopt});
  };
  for (const char* metric : {kTime, kMemory}) {
    for (const std::string& set : sets) {
      add(errors_of(rows, set, "the earlier run", metric,
                    [](const SailorPlan& plan) { return &plan.earlier_run; }));
      for (const std::string& name : names) {
        add(errors_of(rows, set, name, metric, [&](const SailorPlan& plan) {
          const auto found = plan.others.find(name);
          return found == plan.others.end() ? nullptr : &found->second;
        }));
      }
    }
  }
  return lines;
}

/// Our own rows, if transfers overlapped with passes.
std::vector<ErrorLine> overlapped_lines(const std::vector<SailorRow>& rows,
                                        std::vector<ValidationRow> predictions) {
  std::map<std::string, double> times;
  for (const SailorRow& row : rows) {
    times[row.plan->id] = row.prediction.iteration_overlapped.value;
  }
  std::vector<std::string> sets;
  for (ValidationRow& row : predictions) {
    row.predicted = times.at(row.id);
    row.set += ", transfers beside passes";
    if (std::find(sets.begin(), sets.end(), row.set) == sets.end()) sets.push_back(row.set);
  }
  std::vector<ErrorLine> lines;
  for (const std::string& set : sets) {
    lines.push_back({summarize(predictions, set, kTime), std::nullopt, std::nullopt});
  }
  return lines;
}

}  // namespace

std::string set_of(const SailorPlan& plan) {
  return fmt::format("{} {}", plan.cluster, plan.model);
}

SailorReport make_sailor_report(const SailorData& data, const std::string& folder,
                                const models::Library& library,
                                const std::function<void(const SailorPlan&)>& progress) {
  const ir::Profile profile = sailor_profile(data, folder, true);
  const ir::Profile as_published = sailor_profile(data, folder, false);
  SailorReport report;
  for (const SailorPlan& plan : data.plans) {
    progress(plan);
    SailorRow row;
    row.plan = &plan;
    row.prediction = predict_sailor(plan, data, profile, library);
    if (!head_is_profiled(data, plan.model, plan.tensor_parallel())) {
      row.without_head = predict_sailor(plan, data, as_published, library).iteration;
    }
    row.unsliced = unsliced_extra(plan, data);
    report.rows.push_back(std::move(row));
  }
  report.overhead = fit_overhead(report.rows);
  report.predictions = validation_rows(report.rows, report.overhead.value);
  const auto without_head = rows_without_head(report.rows, ", profile as published");
  report.main = main_lines(report.predictions, without_head);
  report.groups = group_lines(report.rows, report.predictions);
  report.others = other_lines(report.rows);
  report.overlapped = overlapped_lines(report.rows, report.predictions);
  report.heads = check_heads(data, folder);
  return report;
}

std::string sailor_components_csv(const SailorReport& report) {
  std::string text =
      "id,set,pp,dp,tp,micro_batch,micro_batches,iteration_s,iteration_beside_s,slowest_compute_s,"
      "compute_s,pipeline_"
      "s,"
      "data_parallel_s,optimizer_s,bubble_s,held_bytes,iteration_without_head_s,"
      "iteration_s_measured\n";
  for (const SailorRow& row : report.rows) {
    const SailorPlan& plan = *row.plan;
    const SailorPrediction& p = row.prediction;
    const auto cell = [](const std::optional<Seconds>& time) {
      return time ? fmt::format("{:.9g}", time->value) : std::string();
    };
    text += fmt::format(
        "{},{},{},{},{},{},{},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.0f},{},{}"
        "\n",
        plan.id, set_of(plan), plan.stages.size(), plan.data_parallel, plan.tensor_parallel(),
        plan.micro_batch, plan.micro_batches, p.iteration.value, p.iteration_overlapped.value,
        p.slowest_compute.value, p.breakdown.compute.value, p.breakdown.pipeline.value,
        p.breakdown.data_parallel.value, p.breakdown.optimizer.value, p.breakdown.bubble.value,
        p.held.value, cell(row.without_head), cell(plan.measured.iteration));
  }
  return text;
}

}  // namespace orrery::experiments
