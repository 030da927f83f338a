// notes.md: what is measured, what is assumed, and the misses, with the figures of the run.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "experiments/validation/sailor/report.h"

namespace orrery::experiments {
namespace {

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

std::string markdown_table(const std::vector<ErrorLine>& lines) {
  std::string text =
      "| set | metric | rows | mean % | median % | max % | bias % | target % | others' best % |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (const ErrorLine& line : lines) {
    const ErrorSummary& e = line.errors;
    if (e.rows == 0) continue;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {:+.1f} | {} | {} |\n", e.set, e.metric,
                        e.rows, percent(e.mean), percent(e.median), percent(e.max), 100 * e.bias,
                        line.target ? percent(*line.target) : "",
                        line.published_best ? percent(*line.published_best) : "");
  }
  return text;
}

/// Measured minus predicted time of each measured plan, and per micro-batch.
std::string residual_table(const SailorReport& report) {
  std::string text =
      "| plan | measured s | predicted s | error % | measured - predicted, ms per micro-batch | "
      "whole activations would add, ms per micro-batch | transfers beside passes s |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const SailorRow& row : report.rows) {
    const SailorPlan& plan = *row.plan;
    if (!plan.measured.iteration) continue;
    const double measured = plan.measured.iteration->value;
    const double predicted = row.prediction.iteration.value;
    text += fmt::format(
        "| {}{} | {:.4g} | {:.4g} | {:+.1f} | {:+.2f} | {} | {:.4g} |\n", plan.id,
        plan.score ? "" : " (not scored)", measured, predicted, 100 * (predicted / measured - 1),
        1000 * (measured - predicted) / plan.micro_batches,
        row.unsliced ? fmt::format("{:.2f}", 1000 * row.unsliced->value) : std::string(),
        row.prediction.iteration_overlapped.value);
  }
  return text;
}

/// Measured peak minus what the simulator counts.
std::string memory_table(const SailorReport& report) {
  std::string text =
      "| plan | measured GB | simulated GB | beyond GB | predicted, error % "
      "|\n|---|---|---|---|---|\n";
  for (const SailorRow& row : report.rows) {
    const SailorPlan& plan = *row.plan;
    if (!plan.measured.peak_memory) continue;
    const double measured = plan.measured.peak_memory->value;
    const double held = row.prediction.held.value;
    text += fmt::format("| {} | {:.2f} | {:.2f} | {:.2f} | {:+.1f} |\n", plan.id, measured / 1e9,
                        held / 1e9, (measured - held) / 1e9,
                        100 * ((held + report.overhead.value) / measured - 1));
  }
  return text;
}

/// HeadCheck::ratio by micro-batch size, of one GPU type and degree.
std::string head_table(const std::vector<HeadCheck>& heads, const std::string& gpu, int degree) {
  std::map<int, std::pair<double, double>> rows;
  for (const HeadCheck& head : heads) {
    if (head.gpu != gpu || head.tensor_parallel != degree) continue;
    auto& row = rows[head.micro_batch_size];
    (head.pass == ir::Pass::backward ? row.second : row.first) = head.ratio;
  }
  std::string text = "| micro-batch | forward | backward |\n|---|---|---|\n";
  for (const auto& [size, row] : rows) {
    text += fmt::format("| {} | {:.2f} | {:.2f} |\n", size, row.first, row.second);
  }
  return text;
}

std::string used_list(const SailorReport& report) {
  std::set<std::string> rooflines;
  std::size_t profiled = 0;
  std::set<std::string> all;
  for (const SailorRow& row : report.rows) {
    all.insert(row.prediction.used.begin(), row.prediction.used.end());
  }
  for (const std::string& line : all) {
    if (line.starts_with("profile:")) {
      ++profiled;
    } else {
      rooflines.insert(line);
    }
  }
  std::string text = fmt::format("{} entries of the profile, and\n\n", profiled);
  for (const std::string& line : rooflines) text += fmt::format("- {}\n", line);
  return text;
}

constexpr const char* kMeasured = R"(## What is measured

By Sailor's authors (eth-easl/sailor, commit cf2c8e3, MIT), nothing by us: times of layers and of the optimizer on a model of two layers, point-to-point rates, activations that layers keep, and iteration time and peak memory of the plans. Values of 16 plans are withheld; predictions.csv has ours by id.

## What is assumed

- A transformer layer takes the mean of the two that were profiled. The backward pass of the embedding was not (the profile's 2 us are an artifact): roofline.
- Optimizer: fixed + parameters x time per parameter, least squares over the profile's degrees and models.
- Links: the published parabola of bandwidth by message size becomes straight lines of time between powers of two, never faster than the fastest measured point. GH200: a NIC for each GPU (two and four pairs reach twice and four times the rate of one). RTX: one NIC for the node (more pairs share one pair's rate). A pair of nodes has the slower of the two NICs. Inside a node a GPU has its share of the rate with as many pairs as its group has.
- DeepSpeed runs passes, sends and receives of a rank one after the other; it sends activations and their gradients in slices (its defaults pipe_partitioned, grad_partitioned), gathers them on the other side, and gathers a stage's own output anew before its backward pass; it reduces gradients after the last backward pass, in one flat buffer. Read in its public sources. No launch options but those of gh200 OPT-350M are published.
- fp32 everywhere, no recomputation, 16 bytes of state for each parameter, no gradient clipping, no data loading.
- GPT-Neo's head: FLOPs of its product with the vocabulary at the rate of a transformer layer of the same profile; twice its logits are kept, and the matrix is tied to the embedding.
)";

constexpr const char* kMisses = R"(What the model lacks:

- Passes that wait for their launches. Forward passes of the profile take about as long with micro-batches of 1 and 2 as with 4: it measures the CPU there, and two real runs of the smallest plan differ as much as a prediction from one of them.
- On GH200 the rows with OPT-350M take longer by about what whole activations would add, though DeepSpeed's default are slices; with GPT-Neo, whose activations are larger, they would add more than what is missing. Metadata messages and copies of received tensors are not simulated.
- On mixed RTX nodes every send waits for its receive here, and the 1 Gb/s link of an RTX 3090 node stands in the way of every pass. The measured time leaves room for passes and gradients only, as in the last column. NCCL buffers a message of a few MB, so that its sender need not wait for the wire: that is not in the model.
- The memory beyond what is simulated is one number, and is not one: it grows with what is simulated, since the allocator keeps blocks that fit nothing else. The data calls the row of GPT-Neo with pp 4 and dp 2 unexplained: it has less than its activations take.
)";

}  // namespace

std::string sailor_notes(const SailorReport& report) {
  std::string text = "# Sailor's measurements: what is measured, assumed and missed\n\n";
  text += markdown_table(report.main);
  text += fmt::format(
      "\nOthers' best: smallest published mean error of another simulator, on all plans of the "
      "set. "
      "On the same rows as ours:\n\n{}",
      markdown_table(report.others));
  text += fmt::format("\n{}\nPriced by {}", kMeasured, used_list(report));
  text += fmt::format(
      "\nFitted: {} = {:.3f} GB, the median over {} rows ({}); mean leave-one-out error {} %.\n",
      report.overhead.name, report.overhead.value / 1e9, report.overhead.fitted_on.size(),
      fmt::join(report.overhead.fitted_on, ", "), percent(report.overhead.leave_one_out));
  text += fmt::format("\n## Known misses\n\nBy plan:\n\n{}\nBy shape:\n\n{}",
                      residual_table(report), markdown_table(report.groups));
  text += fmt::format("\nWere transfers to run beside passes:\n\n{}",
                      markdown_table(report.overlapped));
  text += fmt::format("\nMemory:\n\n{}", memory_table(report));
  text += fmt::format(
      "\nThe head that is added for GPT-Neo, judged where the profile has one (time by the recipe "
      "over measured time of OPT-350M's head, GH-96, degree 4):\n\n{}\nThere the recipe is far "
      "too slow, since OPT-350M's layers are narrow and spend their time in attention. GPT-Neo's "
      "are 2.5 times as wide. Its head has the same vocabulary: its time lies between that of "
      "OPT-350M's head and 2.5 times that.\n",
      head_table(report.heads, "GH-96", 4));
  text += fmt::format("\n{}", kMisses);
  return text;
}

}  // namespace orrery::experiments
