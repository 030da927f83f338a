// The comparison as one JSON document.
#include <optional>
#include <utility>

#include "models/config/visitor.h"
#include "tools/cli/json.h"
#include "tools/commands/compare_report.h"

namespace orrery::tools {
namespace {

using calibration::PredictedMeasured;

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

struct ComparedMemory {
  int rank = 0;
  int device = 0;
  double predicted_bytes = 0;
  double measured_bytes = 0;
  double error = 0;
};
void describe(config::Visitor& v, ComparedMemory& memory) {
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

struct CheckpointRecord {
  std::int64_t checkpoints = 0;
  std::int64_t parts = 0;
  double bytes = 0;
  std::optional<double> predicted_seconds;
  double measured_seconds = 0;
  double longest_seconds = 0;
  double between_steps_seconds = 0;
  std::string problem;
};
void describe(config::Visitor& v, CheckpointRecord& checkpoint) {
  v.required("checkpoints", checkpoint.checkpoints, "steps after which there is one; 0: none");
  v.required("parts", checkpoint.parts, "of ranks, all together");
  v.required("bytes", checkpoint.bytes, "of a part, mean");
  v.optional("predicted_seconds", checkpoint.predicted_seconds,
             "that a part holds its rank's training; mean");
  v.required("measured_seconds", checkpoint.measured_seconds, "the same");
  v.required("longest_seconds", checkpoint.longest_seconds, "measured");
  v.required("between_steps_seconds", checkpoint.between_steps_seconds,
             "measured: not counted in any iteration");
  v.required("problem", checkpoint.problem, "why nothing is predicted, or events are left out");
}

struct ComparedGeneration {
  std::int64_t generation = 0;
  std::string problem;
  std::int64_t steps = 0;
  double shortest_step = 0;
  double longest_step = 0;
  double transfer_error = 0;
  double op_bias = 0;
  std::int64_t compute_ops = 0;
  std::int64_t disturbed_ops = 0;
  std::vector<std::string> notes;
  std::vector<PairRecord> times;
  CheckpointRecord checkpoint;
  std::vector<ComparedMemory> memory;
  std::vector<OpRecord> worst_ops;
  std::vector<PhaseRecord> phases;
  std::optional<PhaseRecord> recovery;
  std::string phases_problem;
  std::vector<std::string> prices;
};
void describe(config::Visitor& v, ComparedGeneration& generation) {
  v.required("generation", generation.generation, "");
  v.required("problem", generation.problem, "why there is no comparison of steps");
  v.required("steps", generation.steps, "that count");
  v.required("shortest_step_seconds", generation.shortest_step, "measured");
  v.required("longest_step_seconds", generation.longest_step, "measured");
  v.required("transfer_error", generation.transfer_error, "mean of |error|, weighted by time");
  v.required("op_bias", generation.op_bias, "of the sum of all ops");
  v.required("compute_ops", generation.compute_ops, "executed");
  v.required("disturbed_ops", generation.disturbed_ops, "of them longer than they should");
  v.required("notes", generation.notes,
             "inputs that are not those of the program that ran, gaps of the profile");
  v.required("times", generation.times, "iteration, components, transfers");
  v.required("checkpoint", generation.checkpoint, "apart from the iteration");
  v.required("memory", generation.memory, "");
  v.required("worst_ops", generation.worst_ops, "");
  v.required("phases", generation.phases, "of the recovery that brought it up");
  v.optional("recovery", generation.recovery, "all phases together");
  v.required("phases_problem", generation.phases_problem, "why some of them are not predicted");
  v.required("prices", generation.prices, "where predicted times come from");
}

struct CompareDocument {
  std::string run;
  std::vector<std::string> notes;
  std::vector<ComparedGeneration> generations;
};
void describe(config::Visitor& v, CompareDocument& document) {
  v.title("Predicted against measured");
  v.required("run", document.run, "");
  v.required("notes", document.notes,
             "about all generations: changed files, links that were not there");
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

ComparedGeneration record_of(const GenerationComparison& generation) {
  ComparedGeneration record;
  record.generation = generation.generation;
  record.problem = generation.problem;
  record.compute_ops = generation.compute_ops;
  record.disturbed_ops = generation.disturbed_ops;
  record.prices = comparison_prices(generation);
  record.notes = generation.notes;
  const calibration::CheckpointComparison& checkpoints = generation.checkpoints;
  record.checkpoint = {checkpoints.checkpoints,
                       checkpoints.parts,
                       checkpoints.bytes.value,
                       checkpoints.predicted,
                       checkpoints.measured,
                       checkpoints.longest,
                       generation.comparison ? generation.comparison->held : 0,
                       checkpoints.problem};
  for (const ComparedPhase& phase : generation.phases) {
    record.phases.push_back({phase.phase, phase.predicted, phase.measured});
  }
  if (const auto total = total_of(generation.phases)) {
    record.recovery = PhaseRecord{total->phase, total->predicted, total->measured};
  }
  record.phases_problem = generation.phases_problem;
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

}  // namespace

std::string comparison_json(const std::string& run, const RunComparison& comparison) {
  CompareDocument document;
  document.run = run;
  document.notes = comparison.notes;
  for (const GenerationComparison& generation : comparison.generations) {
    document.generations.push_back(record_of(generation));
  }
  return to_json(document);
}

}  // namespace orrery::tools
