#include "experiments/validation/vtrain/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "experiments/validation/a100/table.h"

namespace orrery::experiments {
namespace {

/// The file's README: vtrain-multi-091 has the configuration of the measured -090.
constexpr std::string_view kRepeated = "vtrain-multi-091";

/// Gradients are summed in fp16 and reduced after the last backward pass in fp32. The data does not
/// say in which type; fp16 was assumed first, and notes.md says why no longer. 4 adapters of 200
/// Gb/s on a node.
constexpr A100Software kMegatronDeepSpeed = {.gradient_bytes = 4, .accumulation_bytes = 6};
constexpr int kAdapters = 4;

A100Row read_row(const PublishedTable& table, std::size_t i) {
  const auto count = [&](const char* column) { return static_cast<int>(table.count(i, column)); };
  A100Row row;
  row.id = table.text(i, "id");
  row.layers = count("layers");
  row.hidden = count("hidden");
  row.heads = count("heads");
  row.sequence = count("seq_len");
  row.tp = count("tp");
  row.dp = count("dp");
  row.pp = count("pp");
  row.micro_batch = count("micro_batch");
  row.global_batch = count("global_batch");
  row.vocabulary = padded_vocabulary(count("vocab_size_assumed"), row.tp);
  row.nics_per_node = kAdapters;
  row.software = kMegatronDeepSpeed;
  row.set = row.tp > kA100GpusPerNode ? std::string("TP 16")
                                      : fmt::format("{}B", table.text(i, "params_billion"));
  row.scored = row.id != kRepeated;
  if (table.text(i, "activation_recompute_declared") != "full") {
    table.problem(i, "activation_recompute_declared", "only 'full' is known");
  }
  if (row.gpus() != count("gpus")) table.problem(i, "gpus", "is not tp x dp x pp");
  const int replica_batch = row.dp * row.micro_batch;
  if (replica_batch > 0 && row.global_batch % replica_batch != 0) {
    table.problem(i, "global_batch", "is no multiple of dp x micro_batch");
  }
  return row;
}

}  // namespace

bool is_suspect_vtrain(const std::string& id) {
  constexpr std::array<std::string_view, 7> kSuspects = {
      "vtrain-multi-020", "vtrain-multi-046", "vtrain-multi-048", "vtrain-multi-050",
      "vtrain-multi-052", "vtrain-multi-070", "vtrain-multi-080"};
  return std::find(kSuspects.begin(), kSuspects.end(), id) != kSuspects.end();
}

std::vector<A100Row> read_vtrain(const std::string& folder, config::Diagnostics& diagnostics) {
  const std::vector<std::string> columns = {"id",
                                            "source_row_index",
                                            "params_billion",
                                            "layers",
                                            "hidden",
                                            "heads",
                                            "seq_len",
                                            "vocab_size_assumed",
                                            "gpus",
                                            "tp",
                                            "dp",
                                            "pp",
                                            "micro_batch",
                                            "global_batch",
                                            "activation_recompute_declared"};
  std::vector<A100Row> rows;
  for (const bool measured : {true, false}) {
    const std::string path =
        fmt::format("{}/multi_{}.csv", folder, measured ? "measured" : "predict");
    std::vector<std::string> needed = columns;
    if (measured) needed.emplace_back("measured_seconds");
    const std::size_t before = diagnostics.problems().size();
    const PublishedTable table(path, needed, diagnostics);
    if (diagnostics.problems().size() > before) continue;
    for (std::size_t i = 0; i < table.size(); ++i) {
      A100Row row = read_row(table, i);
      if (measured) {
        const auto seconds = table.number(i, "measured_seconds");
        if (!seconds) {
          table.problem(i, "measured_seconds", "is missing");
          continue;
        }
        row.measured = Seconds{*seconds};
        // Row 0 is a multiple of four, too: count() knows positive numbers only.
        const std::string index = table.text(i, "source_row_index");
        row.fitted = (index == "0" || table.count(i, "source_row_index") % 4 == 0) &&
                     row.tp <= kA100GpusPerNode;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace orrery::experiments
