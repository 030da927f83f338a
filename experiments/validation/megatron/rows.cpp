#include "experiments/validation/megatron/rows.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "experiments/validation/a100/table.h"

namespace orrery::experiments {
namespace {

constexpr const char* kSc21 = "SC'21";
constexpr const char* kRecompute = "recompute";
constexpr FlopsPerSecond kPeak = 312_TFLOPS;

struct File {
  const char* name;
  const char* set;   ///< "": by id.
  const char* time;  ///< Column of the measured time; "": none.
};
constexpr File kFiles[] = {{"sc21_table1.csv", kSc21, "derived_iteration_s"},
                           {"recompute_table5.csv", kRecompute, "iteration_s_or_derived"},
                           {"predict_these.csv", "", ""}};

/// fp32 sums of gradients, which are reduced after the last backward pass; SC'21's runs up to 18.4b
/// have torch DDP instead, which reduces fp16 gradients meanwhile. [the data's README]
A100Software software_of(const std::string& id, bool sc21) {
  A100Software software = {.gradient_bytes = 4, .accumulation_bytes = 10};
  if (id == "sc21-1.7b" || id == "sc21-3.6b" || id == "sc21-7.5b" || id == "sc21-18.4b") {
    software = {.gradient_bytes = 2, .accumulation_bytes = 6, .overlapped_gradients = true};
  }
  software.older = sc21;
  return software;
}

A100Row read_row(const PublishedTable& table, std::size_t i, const File& file) {
  const auto count = [&](const char* column) { return static_cast<int>(table.count(i, column)); };
  A100Row row;
  row.id = table.text(i, "id");
  const bool sc21 =
      *file.set != '\0' ? std::string(file.set) == kSc21 : row.id.rfind("sc21-", 0) == 0;
  row.set = sc21 ? kSc21 : kRecompute;
  row.layers = count("layers");
  row.hidden = count("hidden");
  row.heads = count("heads");
  row.sequence = count("sequence");
  row.vocabulary = count("vocab");
  row.tp = count("tp");
  row.pp = count("pp");
  row.dp = count("dp");
  row.micro_batch = count("micro_batch");
  row.global_batch = count("global_batch");
  row.virtual_stages = count("virtual_stages");
  const std::string recompute = table.text(i, "recompute");
  row.recompute = recompute == "full" ? ir::Recompute::full : ir::Recompute::selective;
  if (recompute != "full" && recompute != "selective") {
    table.problem(i, "recompute", fmt::format("'{}' is neither full nor selective", recompute));
  }
  row.sequence_parallel = table.text(i, "sequence_parallel") == "1";
  row.software = software_of(row.id, sc21);
  if (row.gpus() != count("gpus")) table.problem(i, "gpus", "is not tp x dp x pp");
  const int replica_batch = row.dp * row.micro_batch;
  if (replica_batch > 0 && row.global_batch % replica_batch != 0) {
    table.problem(i, "global_batch", "is no multiple of dp x micro_batch");
  }
  return row;
}

double dimensions(const A100Row& row) {
  return static_cast<double>(row.global_batch) * static_cast<double>(row.sequence) * row.layers *
         row.hidden * row.hidden;
}

double attention_and_logits(const A100Row& row, double logits) {
  return 1 + static_cast<double>(row.sequence) / (6.0 * row.hidden) +
         row.vocabulary / (logits * row.layers * row.hidden);
}

/// Printed values of a column by id, from all files that have it.
std::map<std::string, double> printed(const std::string& folder, const std::string& column) {
  std::map<std::string, double> values;
  config::Diagnostics diagnostics;
  for (const File& file : kFiles) {
    const PublishedTable table(fmt::format("{}/{}", folder, file.name), {"id"}, diagnostics);
    for (std::size_t i = 0; table.has(column) && i < table.size(); ++i) {
      if (const auto value = table.number(i, column)) values[table.text(i, "id")] = *value;
    }
  }
  diagnostics.raise();
  return values;
}

}  // namespace

std::vector<A100Row> read_megatron(const std::string& folder, config::Diagnostics& diagnostics) {
  const std::vector<std::string> columns = {"id",
                                            "layers",
                                            "hidden",
                                            "heads",
                                            "sequence",
                                            "vocab",
                                            "tp",
                                            "pp",
                                            "dp",
                                            "gpus",
                                            "global_batch",
                                            "micro_batch",
                                            "virtual_stages",
                                            "recompute",
                                            "sequence_parallel"};
  std::vector<A100Row> rows;
  for (const File& file : kFiles) {
    std::vector<std::string> needed = columns;
    const bool measured = *file.time != '\0';
    if (measured) needed.emplace_back(file.time);
    const std::size_t before = diagnostics.problems().size();
    const PublishedTable table(fmt::format("{}/{}", folder, file.name), needed, diagnostics);
    if (diagnostics.problems().size() > before) continue;
    for (std::size_t i = 0; i < table.size(); ++i) {
      A100Row row = read_row(table, i, file);
      if (measured) {
        const auto seconds = table.number(i, file.time);
        if (!seconds) {
          table.problem(i, file.time, "is missing");
          continue;
        }
        row.measured = Seconds{*seconds};
        row.fitted = (i + 1) % 3 != 0;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Flops equation_3(const A100Row& row) {
  return {96 * dimensions(row) * attention_and_logits(row, 16)};
}

Flops model_flops_of(const A100Row& row) {
  return {72 * dimensions(row) * attention_and_logits(row, 12)};
}

double percent_of_peak(Flops flops, Seconds time, int gpus) {
  return 100 * (flops / (time * kPeak)) / gpus;
}

std::vector<ValidationRow> megatron_metrics(const std::vector<A100Row>& rows,
                                            const std::vector<A100Prediction>& predictions,
                                            const std::string& folder) {
  const auto rates = printed(folder, "achieved_tflops_per_gpu");
  const auto shares = printed(folder, "mfu_percent");
  std::vector<ValidationRow> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const A100Row& row = rows[i];
    const Seconds time = predictions[i].iteration;
    ValidationRow metric;
    metric.id = row.id;
    metric.set = row.set;
    metric.scored = row.scored;
    metric.fitted = row.fitted;
    const bool sc21 = row.set == kSc21;
    metric.metric = sc21 ? "achieved_tflops_per_gpu" : "mfu_percent";
    metric.predicted = sc21 ? (equation_3(row) / time).value / row.gpus() / 1e12
                            : percent_of_peak(model_flops_of(row), time, row.gpus());
    const auto& known = sc21 ? rates : shares;
    if (const auto found = known.find(row.id); found != known.end()) {
      metric.measured = found->second;
    }
    out.push_back(std::move(metric));
  }
  return out;
}

}  // namespace orrery::experiments
