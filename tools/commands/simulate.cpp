/// orrery simulate: one iteration of given plans.
#include "experiments/study/simulate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/base/text.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::SimulateResult;
using experiments::SimulateSettings;

struct SimulateView {
  bool full = false;
};

void describe(config::Visitor& v, SimulateView& view) {
  v.optional("full", view.full,
             "print every pipeline, equal ones too; of jobs also what each came to alone");
}

std::string step_text(const experiments::SimulatedStep& simulated) {
  const models::PlannedStep& step = simulated.plan;
  const experiments::StepOutcome& outcome = simulated.outcome;
  Table table;
  table.number("phase").number("pipelines").number("GPUs").number("sequences").number("tokens");
  table.number("longest");
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    const models::PlannedStep::Phase& phase = step.phases[i];
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
    for (const auto& pipeline : phase.lengths) {
      for (const std::int64_t length : pipeline) {
        sequences += length > 0 ? 1 : 0;
        tokens += length;
      }
    }
    table.row({std::to_string(i), std::to_string(phase.plan.pipelines.size()),
               std::to_string(ir::devices_of(phase.plan).size()), std::to_string(sequences),
               grouped(static_cast<double>(tokens), 0),
               std::to_string(phase.length_range.longest)});
  }
  return fmt::format("{}\nstep {:.6f} s, of which {} switches {:.6f} s\n", table.text(0, colors()),
                     outcome.time.value, outcome.switches, outcome.switching.value);
}

std::string steps_text(const experiments::StepTimes& times) {
  const auto deviation = [&](Seconds time) {
    return fmt::format("{:.6f} s ({:+.2f} %)", time.value, 100 * (time / times.median - 1));
  };
  return fmt::format("\n{} steps: median {:.6f} s, p5 {}, p95 {}\n", times.steps,
                     times.median.value, deviation(times.p5), deviation(times.p95));
}

std::string report_text(const experiments::RunReport& report, const experiments::LoadedRun& run,
                        bool full) {
  std::string text =
      fmt::format("\n{}\n{}", section(report.name, plan_text(*report.plan, run, full)),
                  evaluation_text(*report.evaluation, run, *report.plan, full));
  if (!report.busiest_links.empty()) {
    text += fmt::format("\n{}", section("Busiest links", lines_text(report.busiest_links, 5)));
  }
  if (!report.prices.empty()) {
    text += fmt::format("\n{}", section("Where times of operations come from",
                                        lines_text(report.prices, kPricesShown)));
  }
  if (report.ops > 0) {
    text +=
        fmt::format("\n{} operations on {} ranks\n", grouped(static_cast<double>(report.ops), 0),
                    grouped(static_cast<double>(report.ranks), 0));
    const std::size_t pipelines = report.plan->pipelines.size();
    if (report.simulated_pipelines < static_cast<std::int64_t>(pipelines)) {
      text += fmt::format("{} of {} pipelines simulated: the others did the same\n",
                          report.simulated_pipelines, pipelines);
    }
  }
  return text;
}

std::string comparison(const std::vector<experiments::RunReport>& reports) {
  Table table;
  table.column("plan").number("iteration s").number("tokens/s").number("MFU").number("$/M tokens");
  table.column("verdict");
  for (const experiments::RunReport& report : reports) {
    const models::Evaluation& evaluation = *report.evaluation;
    table.row({report.name, seconds_cell(evaluation.iteration_time.value),
               grouped(evaluation.tokens_per_second, 0), percent(evaluation.mfu),
               dollars(evaluation), verdict_text(evaluation)});
  }
  return fmt::format("\n{}", table.text(0, colors()));
}

std::string exports_text(const SimulateSettings& settings) {
  std::string text;
  if (settings.timeline) {
    text += fmt::format("timeline: {} (open it in {})\n", *settings.timeline, kTimelineViewer);
  }
  if (settings.log) text += fmt::format("run log: {}\n", *settings.log);
  if (settings.program) text += fmt::format("program: {}\n", *settings.program);
  return text.empty() ? "" : "\n" + text;
}

std::string replay_text(const experiments::RecordedReplay& replay,
                        const SimulateSettings& settings) {
  Table times;
  times.column("").number("s").number("against recorded");
  const auto error = [](const std::optional<double>& share) {
    return share ? fmt::format("{:+.2f} %", 100 * *share) : std::string("-");
  };
  if (replay.recorded) {
    times.row({"recorded", seconds_cell(replay.recorded->value), ""});
    times.row({"replayed, everything as long as it was", seconds_cell(replay.as_recorded.value),
               error(replay.as_recorded_error)});
  }
  times.row({fmt::format("replayed, network of {} simulated", replay.cluster),
             seconds_cell(replay.simulated.time.value), error(replay.simulated_error)});
  std::string text =
      section(fmt::format("{}: {}, {} on {} ranks{}", settings.plans.front(), replay.source,
                          counted(static_cast<std::size_t>(replay.ops), "operation"), replay.ranks,
                          replay.steps > 1 ? fmt::format(", {} training steps", replay.steps) : ""),
              times.text(0, colors()));
  for (const std::string& note : replay.notes) text += fmt::format("note: {}\n", note);
  if (replay.what_if) {
    text += fmt::format("\nwith what you changed (on {}): {} s, {:+.2f} % against the simulated\n",
                        replay.what_if_cluster, seconds_cell(replay.what_if->time.value),
                        100 * replay.change.value_or(0));
    if (replay.expected) {
      text +=
          fmt::format("expected: {} s instead of the recorded {} s\n",
                      seconds_cell(replay.expected->value), seconds_cell(replay.recorded->value));
    }
  }
  Table parts;
  parts.column("mean over ranks").number("simulated s");
  if (replay.what_if) parts.number("changed s");
  const auto row = [&](const char* name, Seconds experiments::ReplayedParts::*part) {
    std::vector<std::string> cells = {name, seconds_cell((replay.simulated.parts.*part).value)};
    if (replay.what_if) cells.push_back(seconds_cell((replay.what_if->parts.*part).value));
    parts.row(cells);
  };
  using experiments::ReplayedParts;
  row("kernels", &ReplayedParts::compute);
  row("exposed collectives", &ReplayedParts::collectives);
  row("exposed messages", &ReplayedParts::messages);
  row("idle (host, other ranks)", &ReplayedParts::idle);
  text += fmt::format("\n{}", section("Where the time goes", parts.text(2)));
  const experiments::ReplayOnce& last = replay.what_if ? *replay.what_if : replay.simulated;
  if (!last.busiest_links.empty()) {
    text += fmt::format("\n{}", section("Busiest links", lines_text(last.busiest_links, 5)));
  }
  return text;
}

std::string jobs_text(const experiments::JobsTogether& together) {
  const bool range = together.phases > 1;
  Table jobs;
  jobs.column("job").column("plan").number("GPUs").number("alone s").number("together s");
  if (range) jobs.number("fastest s").number("slowest s");
  jobs.number("slow-down").number("tokens/s").column("shares links with");
  for (const experiments::JobTogether& job : together.jobs) {
    if (job.infeasible) {
      jobs.row({job.name, job.plan + ": no plan"});
      continue;
    }
    std::vector<std::string> cells = {job.name, job.plan, std::to_string(job.devices),
                                      seconds_cell(job.alone.value),
                                      seconds_cell(job.together.value)};
    if (range) {
      cells.push_back(seconds_cell(job.fastest.value_or(job.together).value));
      cells.push_back(seconds_cell(job.slowest.value_or(job.together).value));
    }
    cells.push_back(fmt::format("{:.3f}", job.slowdown));
    cells.push_back(grouped(job.tokens_per_second, 0));
    cells.push_back(fmt::format("{}", fmt::join(job.shares_links_with, ", ")));
    jobs.row(cells);
  }
  std::string text =
      section(fmt::format("Jobs side by side on {}{}", together.cluster,
                          range ? fmt::format(", median of {} phases", together.phases) : ""),
              jobs.text(0, colors()));
  text += fmt::format("\nAll jobs: {} tokens/s, {} if none slowed another\n",
                      grouped(together.tokens_per_second, 0),
                      grouped(together.tokens_per_second_alone, 0));
  if (together.links.empty()) return text + "No link is shared.\n";
  Table links;
  links.column("link").number("GB/s").number("busy").column("by");
  for (const experiments::SharedLink& link : together.links) {
    std::vector<std::string> shares;
    for (const auto& [name, share] : link.by_job) {
      shares.push_back(fmt::format("{} {}", name, percent(share)));
    }
    links.row({link.link, fmt::format("{:.3g}", link.capacity.value / 1e9), percent(link.busy),
               fmt::format("{}", fmt::join(shares, ", "))});
  }
  const auto shown = static_cast<std::int64_t>(together.links.size());
  return text + "\n" +
         section(shown < together.shared_links ? fmt::format("Shared links, the busiest {} of {}",
                                                             shown, together.shared_links)
                                               : "Shared links",
                 links.text(2, colors()));
}

void print_simulation(const SimulateResult& result, const SimulateSettings& settings,
                      const SimulateView& view) {
  if (result.step) {
    print(section(fmt::format("{} on {}", settings.plans.front(), result.cluster),
                  step_text(*result.step)));
    return;
  }
  if (result.recorded) {
    print(replay_text(*result.recorded, settings));
    print(exports_text(settings));
    return;
  }
  if (result.jobs) {
    for (std::size_t i = 0; i < result.plans.size(); ++i) {
      const experiments::RunReport& alone = result.plans[i];
      if (alone.infeasible) {
        print(fmt::format("{}: {}\n", alone.name, infeasible_text(*alone.infeasible)));
      } else if (view.full) {
        print(job_line(result.inputs[i]) + report_text(alone, result.inputs[i], true) + "\n");
      }
    }
    return print(jobs_text(*result.jobs));
  }
  print(job_line(result.inputs.front()));
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    print(report_text(result.plans[i], result.inputs[i], view.full));
    if (!result.steps.empty()) print(steps_text(result.steps[i]));
  }
  if (result.plans.size() > 1) print(comparison(result.plans));
  print(exports_text(settings));
}

}  // namespace

extern const Command kSimulate;
const Command kSimulate = command<experiments::simulate, print_simulation, SimulateView>(
    "simulate",
    "Simulate one iteration of plans, jobs side by side, or a recorded run with another network",
    "simulate experiments/hexiscale/case_study/plans/hexiscale.yaml --cluster hexiscale_case_study "
    "--model llama2_13b --sequence-length 4096");

}  // namespace orrery::tools
