/// orrery diff: what two plans do differently, and what it costs.
#include "experiments/study/diff.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

std::string differences_text(const std::vector<experiments::Difference>& all) {
  if (all.empty()) return "The plans are the same.\n";
  Table table;
  table.column("where").column("what").column("A").column("B");
  std::string last;
  for (const experiments::Difference& difference : all) {
    table.row({difference.where == last ? "" : difference.where, difference.what, difference.first,
               difference.second});
    last = difference.where;
  }
  return section("What differs", table.text(2));
}

std::string change(double a, double b) {
  return a > 0 ? fmt::format("{:+.1f} %", 100 * (b / a - 1)) : "-";
}

std::string costs_text(const models::Evaluation& a, const models::Evaluation& b) {
  Table table;
  table.column("").number("A").number("B").number("B against A");
  const auto row = [&](const char* name, double x, double y, int digits) {
    if (x == 0 && y == 0) return;
    table.row({name, grouped(x, digits), grouped(y, digits), change(x, y)});
  };
  row("iteration time s", a.iteration_time.value, b.iteration_time.value, 4);
  row("  compute s", a.breakdown.compute.value, b.breakdown.compute.value, 4);
  row("  tensor parallelism s", a.breakdown.tensor_parallel.value,
      b.breakdown.tensor_parallel.value, 4);
  row("  gathers of parameters (ZeRO-3) s", a.breakdown.zero.value, b.breakdown.zero.value, 4);
  row("  pipeline transfers s", a.breakdown.pipeline.value, b.breakdown.pipeline.value, 4);
  row("  data parallelism s", a.breakdown.data_parallel.value, b.breakdown.data_parallel.value, 4);
  row("  optimizer s", a.breakdown.optimizer.value, b.breakdown.optimizer.value, 4);
  row("  bubble s", a.breakdown.bubble.value, b.breakdown.bubble.value, 4);
  row("tokens/s", a.tokens_per_second, b.tokens_per_second, 1);
  row("MFU %", 100 * a.mfu, 100 * b.mfu, 1);
  row("HFU %", 100 * a.hfu, 100 * b.hfu, 1);
  if (a.dollars_per_million_tokens && b.dollars_per_million_tokens) {
    row("$ per million tokens", a.dollars_per_million_tokens->value,
        b.dollars_per_million_tokens->value, 3);
  }
  return section("What it costs (parts of the iteration: mean over GPUs)", table.text(2));
}

std::string memory_side_by_side(const models::Evaluation& a, const models::Evaluation& b) {
  std::vector<std::string> gpus;
  for (const models::Evaluation* side : {&a, &b}) {
    for (const ir::MemoryUse& use : side->memory.by_gpu_type) {
      if (std::find(gpus.begin(), gpus.end(), use.gpu) == gpus.end()) gpus.push_back(use.gpu);
    }
  }
  const auto find = [](const models::Evaluation& side, const std::string& gpu) {
    const auto at = std::find_if(side.memory.by_gpu_type.begin(), side.memory.by_gpu_type.end(),
                                 [&](const ir::MemoryUse& use) { return use.gpu == gpu; });
    return at == side.memory.by_gpu_type.end() ? nullptr : &*at;
  };
  const auto peak = [](const ir::MemoryUse* use) {
    return use == nullptr ? "-" : grouped(use->need.value / 0x1p30, 1);
  };
  const auto verdict = [](const ir::MemoryUse* use) {
    if (use == nullptr) return std::string("not used");
    return use->fits() ? good("fits") : bad("does not fit");
  };
  Table table;
  table.column("GPU type").number("has GiB").number("A GiB").number("B GiB");
  table.number("B against A").column("A").column("B");
  for (const std::string& gpu : gpus) {
    const ir::MemoryUse* x = find(a, gpu);
    const ir::MemoryUse* y = find(b, gpu);
    table.row({gpu, grouped((x != nullptr ? x : y)->have.value / 0x1p30, 1), peak(x), peak(y),
               x != nullptr && y != nullptr ? change(x->need.value, y->need.value) : "-",
               verdict(x), verdict(y)});
  }
  return section("Peak memory by GPU type", table.text(2));
}

void print_diff(const experiments::DiffResult& result, const experiments::DiffSettings& settings) {
  const models::Evaluation& a = *result.plans[0].evaluation;
  const models::Evaluation& b = *result.plans[1].evaluation;
  print(job_line(result.inputs));
  print(fmt::format("A: {}\nB: {}\n\n", settings.first, settings.second));
  print(differences_text(result.differences) + "\n" + costs_text(a, b) + "\n" +
        memory_side_by_side(a, b));
}

}  // namespace

extern const Command kDiff;
const Command kDiff = command<experiments::diff, print_diff>(
    "diff", "Compare two plans: what differs and what it costs",
    "diff experiments/hexiscale/case_study/plans/megatron.yaml "
    "experiments/hexiscale/case_study/plans/hexiscale.yaml --cluster hexiscale_case_study --model "
    "llama2_13b --sequence-length 4096");

}  // namespace orrery::tools
