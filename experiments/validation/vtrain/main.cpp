// Predicts vTrain's multi-node iterations on A100 clusters and prints the errors (README.md).
//
//   validation_vtrain [--data DIR] [--out DIR] [--jobs N] [--cross parameters.csv]
#include "experiments/validation/a100/program.h"
#include "experiments/validation/vtrain/rows.h"

namespace {

using namespace orrery::experiments;

/// Mean errors of the same rows: vTrain's own claim is 14.7 %, Calculon's 11.1 %.
constexpr double kPublishedBest = 0.111;
constexpr double kTarget = 0.08;

std::vector<ErrorLine> error_lines(const A100Results& results) {
  std::vector<ErrorLine> lines;
  const auto scored = [&](const std::string& name, auto take) {
    return errors_of(name, results.rows, results.unseen,
                     [&](const A100Row& row) { return !row.fitted && take(row); });
  };
  for (const char* set : {"3.6B", "18.4B", "39.1B", "175B", "TP 16"}) {
    lines.push_back(scored(set, [&](const A100Row& row) { return row.set == set; }));
  }
  const auto inside = [](const A100Row& row) { return row.set != "TP 16"; };
  lines.push_back(scored("scored, without TP 16", inside));
  lines.back().target = kTarget;
  lines.back().published_best = kPublishedBest;
  lines.push_back(scored("scored", [](const A100Row&) { return true; }));
  lines.back().published_best = kPublishedBest;
  lines.push_back(scored("scored, no TP 16, no suspects", [&](const A100Row& row) {
    return inside(row) && !is_suspect_vtrain(row.id);
  }));
  lines.push_back(errors_of("fitted, leave one out", results.rows, results.unseen,
                            [](const A100Row& row) { return row.fitted; }));
  lines.push_back(errors_of("all unseen, without TP 16", results.rows, results.unseen, inside));
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  A100Validation validation;
  validation.name = "vtrain";
  validation.source =
      "multi_measured.csv and multi_predict.csv, made from github.com/VIA-Research/"
      "vTrain, data/ground_truth_multi.csv";
  validation.free = {A100Parameter::gemm_share, A100Parameter::memory_share,
                     A100Parameter::nvlink_share, A100Parameter::network_share,
                     A100Parameter::host_per_layer};
  validation.start = declared_a100_parameters();
  validation.read = read_vtrain;
  validation.lines = error_lines;
  return run_validation(argc, argv, validation);
}
