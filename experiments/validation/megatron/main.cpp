// Predicts Megatron's published iterations on Selene and prints the errors (README.md).
//
//   validation_megatron [--data DIR] [--out DIR] [--jobs N] [--cross parameters.csv]
#include "experiments/validation/a100/program.h"
#include "experiments/validation/megatron/rows.h"

namespace {

using namespace orrery::experiments;

/// Calculon's own validation on the recompute rows of 22B to 1T: 3.65 % mean, 8.87 % max.
constexpr double kPublishedBest = 0.0365;
constexpr double kTarget = 0.03;

std::vector<ErrorLine> error_lines(const A100Results& results) {
  std::vector<ErrorLine> lines;
  const auto take = [&](const std::string& name, auto which, std::optional<double> target,
                        std::optional<double> published) {
    lines.push_back(errors_of(name, results.rows, results.unseen, which, target, published));
  };
  const auto all = [](const A100Row&) { return true; };
  const auto scored = [](const A100Row& row) { return !row.fitted; };
  const auto sc21 = [](const A100Row& row) { return row.software.older; };
  const auto recompute = [](const A100Row& row) { return !row.software.older; };
  take("scored, SC'21", [&](const A100Row& row) { return scored(row) && sc21(row); }, {}, {});
  take(
      "scored, recompute", [&](const A100Row& row) { return scored(row) && recompute(row); }, {},
      kPublishedBest);
  take("scored", scored, kTarget, kPublishedBest);
  take("fitted, leave one out", [](const A100Row& row) { return row.fitted; }, {}, {});
  take("all unseen, SC'21", sc21, {}, {});
  take("all unseen, recompute", recompute, {}, kPublishedBest);
  take("all unseen", all, kTarget, kPublishedBest);
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  A100Validation validation;
  validation.name = "megatron";
  validation.source =
      "sc21_table1.csv, recompute_table5.csv and predict_these.csv, from arXiv "
      "2104.04473 Table 1 and arXiv 2205.05198 Tables 3 and 5";
  validation.free = {A100Parameter::gemm_share, A100Parameter::older_software};
  validation.start = declared_a100_parameters();
  validation.read = read_megatron;
  validation.more_metrics = megatron_metrics;
  validation.lines = error_lines;
  return run_validation(argc, argv, validation);
}
