#include "tools/commands/execute_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/config/visitor.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"

namespace orrery::tools {
namespace {

constexpr std::size_t kLinksShown = 24;

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

struct ExecutedStep {
  std::int64_t generation = 0;
  std::int64_t step = 0;
  double loss = 0;
  double start_seconds = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
};
void describe(config::Visitor& v, ExecutedStep& step) {
  v.required("generation", step.generation, "");
  v.required("step", step.step, "");
  v.required("loss", step.loss, "mean over tokens, nats");
  v.required("start_seconds", step.start_seconds, "from the start of the run");
  v.required("step_seconds", step.step_seconds, "");
  v.required("tokens_per_second", step.tokens_per_second, "");
}

struct RankRecord {
  std::int64_t rank = 0;
  std::int64_t device = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  double clock_offset_seconds = 0;
  double clock_uncertainty_seconds = 0;
};
void describe(config::Visitor& v, RankRecord& rank) {
  v.required("rank", rank.rank, "");
  v.required("device", rank.device, "");
  v.required("peak_bytes", rank.peak_bytes, "of tensors in the fullest step");
  v.required("sent_bytes", rank.sent_bytes, "");
  v.required("received_bytes", rank.received_bytes, "");
  v.required("clock_offset_seconds", rank.clock_offset_seconds, "to rank 0");
  v.required("clock_uncertainty_seconds", rank.clock_uncertainty_seconds, "");
}

struct EventRecord {
  double seconds = 0;
  std::string kind;
  std::string detail;
};
void describe(config::Visitor& v, EventRecord& event) {
  v.required("seconds", event.seconds, "from the start of the run");
  v.required("kind", event.kind, "");
  v.required("detail", event.detail, "");
}

struct ExecutedGeneration {
  std::int64_t generation = 0;
  std::string what;
  std::vector<RankRecord> ranks;
  std::vector<EventRecord> events;
};
void describe(config::Visitor& v, ExecutedGeneration& generation) {
  v.required("generation", generation.generation, "");
  v.required("what", generation.what, "");
  v.required("ranks", generation.ranks, "");
  v.required("events", generation.events, "");
}

struct ExecuteDocument {
  std::string result;
  std::string problem;
  std::vector<ExecutedStep> steps;
  std::vector<ExecutedGeneration> generations;
};
void describe(config::Visitor& v, ExecuteDocument& document) {
  v.title("A run");
  v.required("result", document.result, "completed, failed, interrupted or refused");
  v.required("problem", document.problem, "why it failed");
  v.required("steps", document.steps, "");
  v.required("generations", document.generations, "");
}

const char* name_of(executor::LaunchReport::Result result) {
  switch (result) {
    case executor::LaunchReport::Result::completed:
      return "completed";
    case executor::LaunchReport::Result::failed:
      return "failed";
    case executor::LaunchReport::Result::interrupted:
      return "interrupted";
    case executor::LaunchReport::Result::refused:
      return "refused";
  }
  return "?";
}

std::string totals(const executor::LaunchReport& report) {
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

}  // namespace

std::string step_text(const executor::StepLine& line) {
  return fmt::format("step {:>5}  loss {:.6f}  {} s  {} tokens/s\n", line.step, line.loss,
                     seconds_cell(line.seconds), grouped(line.tokens_per_second, 0));
}

std::string launch_text(const executor::LaunchReport& report) {
  std::string text;
  if (!report.steps.empty()) text += fmt::format("\n{}", totals(report));
  for (const executor::GenerationSummary& generation : report.generations) {
    const std::string name = fmt::format("Generation {} ({})", generation.number, generation.what);
    text += fmt::format("\n{}{}", section(name, ranks(generation)), links(generation));
    if (generation.number > 0) {
      text += fmt::format("\n{}", section("How it came up", recovery(generation)));
    }
  }
  return text;
}

std::string launch_json(const executor::LaunchReport& report) {
  ExecuteDocument document;
  document.result = name_of(report.result);
  document.problem = report.problem;
  for (const executor::StepLine& line : report.steps) {
    document.steps.push_back({line.generation, line.step, line.loss, line.start_seconds,
                              line.seconds, line.tokens_per_second});
  }
  for (const executor::GenerationSummary& generation : report.generations) {
    ExecutedGeneration record{generation.number, generation.what, {}, {}};
    for (std::size_t r = 0; r < generation.ranks.size(); ++r) {
      const executor::RankSummary& rank = generation.ranks[r];
      record.ranks.push_back({static_cast<std::int64_t>(r), rank.device, rank.peak_bytes,
                              rank.sent_bytes, rank.received_bytes,
                              static_cast<double>(rank.clock_offset_ns) * 1e-9,
                              static_cast<double>(rank.clock_uncertainty_ns) * 1e-9});
    }
    for (const ir::LogEvent& event : generation.events) {
      record.events.push_back(
          {static_cast<double>(event.at.nanoseconds) * 1e-9, event.kind, event.detail});
    }
    document.generations.push_back(std::move(record));
  }
  return to_json(document);
}

}  // namespace orrery::tools
