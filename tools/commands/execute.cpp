/// orrery execute: a plan run for real, by one process for each device.
#include "experiments/execution/execute.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::ExecuteResult;
using experiments::ExecuteSettings;

constexpr std::size_t kLinksShown = 24;

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

std::string totals(const ExecuteResult& report) {
  double seconds = 0;
  double tokens = 0;
  for (const executor::StepLine& line : report.steps) {
    seconds += line.seconds;
    tokens += line.tokens_per_second * line.seconds;
  }
  const auto [first, last] = std::minmax_element(
      report.steps.begin(), report.steps.end(),
      [](const auto& a, const auto& b) { return a.start_seconds < b.start_seconds; });
  Table table;
  table.number("steps").number("mean step s").number("tokens/s").number("first loss");
  table.number("last loss").number("generations");
  table.row({grouped(static_cast<double>(report.steps.size()), 0),
             seconds_cell(seconds / static_cast<double>(report.steps.size())),
             grouped(tokens / seconds, 0), fmt::format("{:.6f}", first->loss),
             fmt::format("{:.6f}", last->loss), std::to_string(report.generations.size())});
  return table.text(0, colors());
}

std::string ranks(const executor::GenerationSummary& generation) {
  Table table;
  table.number("rank").number("device").number("peak MiB").number("sent MiB");
  table.number("received MiB").number("clock offset us").number("+- us");
  for (std::size_t r = 0; r < generation.ranks.size(); ++r) {
    const executor::RankSummary& rank = generation.ranks[r];
    table.row({std::to_string(r), std::to_string(rank.device), grouped(mib(rank.peak_bytes), 2),
               grouped(mib(rank.sent_bytes), 2), grouped(mib(rank.received_bytes), 2),
               grouped(static_cast<double>(rank.clock_offset_ns) * 1e-3, 1),
               grouped(static_cast<double>(rank.clock_uncertainty_ns) * 1e-3, 1)});
  }
  return table.text(0, colors());
}

std::string links(const executor::GenerationSummary& generation) {
  std::vector<executor::GenerationSummary::Link> all = generation.links;
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  Table table;
  table.number("from").number("to").number("MiB");
  for (std::size_t i = 0; i < std::min(kLinksShown, all.size()); ++i) {
    table.row(
        {std::to_string(all[i].from), std::to_string(all[i].to), grouped(mib(all[i].bytes), 3)});
  }
  if (table.empty()) return "";
  std::string text = fmt::format("\n{}", section("Bytes between ranks", table.text(0, colors())));
  if (all.size() > kLinksShown) {
    text += fmt::format("and {}\n", counted(all.size() - kLinksShown, "pair"));
  }
  return text;
}

std::string recovery(const executor::GenerationSummary& generation) {
  Table table;
  table.number("s").column("event").column("");
  double first = -1;
  std::vector<ir::LogEvent> events = generation.events;
  for (const ir::LogEvent& event : events) {
    if (event.kind.rfind("t_", 0) != 0) continue;
    const double at = static_cast<double>(event.at.nanoseconds) * 1e-9;
    if (first < 0) first = at;
    table.row({fmt::format("{:+.4f}", at - first), event.kind, event.detail});
  }
  return table.text(0, colors());
}

ExecuteResult execute(const ExecuteSettings& settings, const experiments::Call& call,
                      config::Diagnostics problems) {
  experiments::ExecuteHooks hooks;
  hooks.on_start = [&](const experiments::LoadedRun& run) { call.line(job_line(run)); };
  hooks.on_step = [&](const executor::StepLine& line) {
    call.line(fmt::format("step {:>5}  loss {:.6f}  {} s  {} tokens/s\n", line.step, line.loss,
                          seconds_cell(line.seconds), grouped(line.tokens_per_second, 0)));
  };
  return experiments::execute(settings, call, std::move(problems), hooks);
}

void print_execution(const ExecuteResult& report, const ExecuteSettings&) {
  std::string text;
  if (!report.steps.empty()) text += fmt::format("\n{}", totals(report));
  for (const executor::GenerationSummary& generation : report.generations) {
    const std::string name = fmt::format("Generation {} ({})", generation.number, generation.what);
    text += fmt::format("\n{}{}", section(name, ranks(generation)), links(generation));
    if (generation.number > 0) {
      text += fmt::format("\n{}", section("How it came up", recovery(generation)));
    }
  }
  print(text);
}

}  // namespace

extern const Command kExecute;
const Command kExecute = command<execute, print_execution>(
    "execute", "Run a plan for real: one process for each device",
    "execute experiments/executor/two_replicas.yaml --cluster a100_8 --model "
    "experiments/executor/tiny_llama.yaml --sequence-length 32 --steps 5",
    "Exit code 1: the run failed. 130: interrupted; logs are kept.");

}  // namespace orrery::tools
