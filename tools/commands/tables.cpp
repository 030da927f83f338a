#include "tools/commands/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/ir/names.h"
#include "models/schedule/rounds.h"
#include "tools/cli/output.h"

namespace orrery::tools {
namespace {

constexpr double kGib = 0x1p30;

/// Which of the rarer columns a plan needs.
struct Columns {
  bool recompute = false;
  bool zero = false;
  bool sequence = false;
  bool samples = false;
  bool experts = false;
};

Columns columns_of(const ir::Plan& plan) {
  Columns columns;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        columns.recompute |= segment.recompute != ir::Recompute::none;
        columns.zero |= segment.zero.stage != 0;
        columns.samples |= segment.groups.size() > 1;
        columns.experts |= segment.expert_parallel > 1;
        for (const ir::Group& group : segment.groups) {
          columns.sequence |= group.sequence != ir::SequenceParallelism::none;
        }
      }
    }
  }
  return columns;
}

/// "1", "1 (weight 24)" of uneven shards.
std::string zero_of(const ir::Segment& segment) {
  const std::string weights = experiments::by_group(
      segment, [](const ir::Group& group) { return std::to_string(group.state_weight); });
  return weights == "1" ? std::to_string(segment.zero.stage)
                        : fmt::format("{} (weight {})", segment.zero.stage, weights);
}

/// "2+1+1" of a micro-batch, by group; "1x128" for many groups alike.
std::string samples_of(const ir::Stage& stage) {
  constexpr std::size_t kGroupsInFull = 8;
  return by_segment(stage, [](const ir::Segment& segment) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < segment.groups.size(); begin = end) {
      const int samples = segment.groups[begin].samples;
      while (end < segment.groups.size() && segment.groups[end].samples == samples) ++end;
      const std::size_t alike = end - begin;
      const bool in_full = alike <= kGroupsInFull;
      for (std::size_t i = 0; i < (in_full ? alike : 1); ++i) {
        text += fmt::format("{}{}", text.empty() ? "" : "+", samples);
      }
      if (!in_full) text += fmt::format("x{}", alike);
    }
    return text;
  });
}

std::string sequence_of(const ir::Stage& stage) {
  return by_segment(stage, [](const ir::Segment& segment) {
    return by_group(segment, [](const ir::Group& group) {
      const std::string name = ir::name_of(group.sequence);
      return group.sequence_degree > 1 ? fmt::format("{} {}", name, group.sequence_degree) : name;
    });
  });
}

int layers_of(const ir::Stage& stage, const models::Workload& workload) {
  int layers = 0;
  for (const ir::Segment& segment : stage.segments) {
    const int first = std::max(segment.first_block.value, workload.first_layer().value);
    const int last = std::min(segment.last_block.value, workload.last_layer().value);
    layers += std::max(0, last - first + 1);
  }
  return layers;
}

}  // namespace

std::string error_cell(double error) {
  return std::isfinite(error) ? fmt::format("{:+.1f} %", 100 * error) : "-";
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string job_line(const experiments::LoadedRun& run) {
  const models::Job& job = run.spec.job;
  std::vector<DeviceId> all;
  for (const models::Device& device : run.cluster.devices) all.push_back(device.id);
  return fmt::format("{} on {} ({}: {}), global batch {}, sequence length {}, {}\n",
                     run.workload.name, run.cluster.name, counted(all.size(), "GPU"),
                     composition(all, run.cluster), job.global_batch, job.sequence_length,
                     ir::name_of(job.dtype));
}

namespace {

/// What the table shows of a stage besides its devices, a cell for each column.
std::vector<std::string> stage_cells(const ir::Stage& stage, const Columns& columns,
                                     const experiments::LoadedRun& run) {
  std::vector<std::string> cells = {
      composition(ir::devices_of(stage), run.cluster), block_ranges(stage),
      std::to_string(layers_of(stage, run.workload)), tensor_parallel(stage)};
  if (columns.samples) cells.push_back(samples_of(stage));
  if (columns.sequence) cells.push_back(sequence_of(stage));
  if (columns.experts) {
    cells.push_back(by_segment(stage, experiments::expert_parallel));
  }
  if (columns.recompute) {
    cells.push_back(
        by_segment(stage, [](const auto& s) { return std::string(ir::name_of(s.recompute)); }));
  }
  if (columns.zero) {
    cells.push_back(by_segment(stage, zero_of));
  }
  return cells;
}

/// Pipelines that share their rows.
struct Alike {
  std::vector<std::size_t> pipelines;
  std::string micro_batches;
  std::vector<std::vector<std::string>> stages;  ///< stage_cells().
};

std::vector<Alike> alike_pipelines(const ir::Plan& plan, const Columns& columns,
                                   const experiments::LoadedRun& run, bool full) {
  std::size_t rows = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) rows += pipeline.stages.size();
  const bool collapse = !full && rows > kRowsShown;
  std::vector<Alike> all;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[p];
    Alike own{{p}, fmt::format("{} x {}", pipeline.micro_batches, pipeline.micro_batch_size), {}};
    for (const ir::Stage& stage : pipeline.stages) {
      own.stages.push_back(stage_cells(stage, columns, run));
    }
    const auto equal = std::find_if(all.begin(), all.end(), [&](const Alike& other) {
      return other.micro_batches == own.micro_batches && other.stages == own.stages;
    });
    if (collapse && equal != all.end()) {
      equal->pipelines.push_back(p);
    } else {
      all.push_back(std::move(own));
    }
  }
  return all;
}

/// "0-3,8" of ascending numbers.
std::string ranges(const std::vector<std::size_t>& numbers) {
  std::vector<DeviceId> ids;
  for (const std::size_t number : numbers) ids.push_back(DeviceId{static_cast<int>(number)});
  return id_ranges(std::move(ids));
}

/// Whether gradients are synchronized at all.
bool has_replicas(const ir::Plan& plan) {
  const auto several = [](const ir::Segment& segment) { return segment.groups.size() > 1; };
  const auto any = [&](const ir::Stage& stage) {
    return std::any_of(stage.segments.begin(), stage.segments.end(), several);
  };
  return plan.pipelines.size() > 1 ||
         std::any_of(plan.pipelines.begin(), plan.pipelines.end(), [&](const ir::Pipeline& chain) {
           return std::any_of(chain.stages.begin(), chain.stages.end(), any);
         });
}

}  // namespace

std::string plan_text(const ir::Plan& plan, const experiments::LoadedRun& run, bool full) {
  const Columns columns = columns_of(plan);
  Table table;
  table.number("pipeline").column("micro-batches").number("stage").column("GPUs");
  table.column("devices").column("blocks").number("layers").column("TP");
  if (columns.samples) table.column("samples");
  if (columns.sequence) table.column("sequence");
  if (columns.experts) table.column("EP");
  if (columns.recompute) table.column("recompute");
  if (columns.zero) table.column("ZeRO");
  bool shared = false;
  for (const Alike& alike : alike_pipelines(plan, columns, run, full)) {
    shared |= alike.pipelines.size() > 1;
    const std::vector<ir::Stage>& stages = plan.pipelines[alike.pipelines.front()].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      std::vector<std::string> cells = {s == 0 ? ranges(alike.pipelines) : "",
                                        s == 0 ? alike.micro_batches : "", std::to_string(s)};
      const std::vector<std::string>& own = alike.stages[s];
      cells.push_back(own.front());
      cells.push_back(id_ranges(ir::devices_of(stages[s])));
      cells.insert(cells.end(), own.begin() + 1, own.end());
      table.row(std::move(cells));
    }
  }
  std::string head = fmt::format("Plan: {}, {}, {} of {} GPUs", ir::name_of(plan.schedule),
                                 counted(plan.pipelines.size(), "pipeline"),
                                 ir::devices_of(plan).size(), run.cluster.size());
  if (plan.virtual_stages > 1) head += fmt::format(", {} virtual stages", plan.virtual_stages);
  if (plan.communication.gradient_overlap) head += ", gradients overlap the backward pass";
  if (plan.communication.parameter_overlap) head += ", gathers of parameters the next forward pass";
  if (!run.spec.job.hidden_collectives.empty()) {
    std::vector<const char*> names;
    for (const ir::Purpose purpose : run.spec.job.hidden_collectives)
      names.push_back(ir::name_of(purpose));
    head += fmt::format(", passes hide {}", fmt::join(names, ", "));
  }
  if (plan.optimizer_offload > 0) {
    head +=
        fmt::format(", {:.0f} % of optimizer states in host memory", 100 * plan.optimizer_offload);
  }
  const int rounds = models::gradient_rounds(plan, run.spec.job.gradient_synchronizations);
  if (rounds > 1 && has_replicas(plan))
    head += fmt::format(", gradients synchronized {} times a step", rounds);
  std::size_t rerouted = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) rerouted += pipeline.reroutes.size();
  if (rerouted > 0) head += fmt::format(", {} to another pipeline", counted(rerouted, "reroute"));
  std::string body = table.text(2);
  if (shared) body += "  of equal pipelines the devices of the first are shown; --full shows all\n";
  return section(head, body);
}

/// Above this share of a GPU's memory a plan fits on paper: an allocator needs slack. [choice]
constexpr double kTight = 0.95;

bool is_tight(const ir::MemoryUse& use) { return use.need > kTight * use.have; }

std::string verdict_text(const models::Evaluation& evaluation) {
  if (!evaluation.memory.fits()) return bad("does not fit: " + evaluation.memory.explain());
  const auto& uses = evaluation.memory.by_gpu_type;
  return std::any_of(uses.begin(), uses.end(), is_tight) ? bad("fits, tight") : good("fits");
}

std::string dollars(const models::Evaluation& evaluation) {
  if (!evaluation.dollars_per_million_tokens) return "-";
  return fmt::format("${:.3f}", evaluation.dollars_per_million_tokens->value);
}

double kwh_per_million_tokens(Joules per_token) {
  constexpr double kKilowattHour = 3.6e6;
  return 1e6 * per_token.value / kKilowattHour;
}

std::string memory_text(const models::Evaluation& evaluation) {
  Table table;
  table.column("GPU type").number("peak GiB").number("has GiB").number("used");
  table.column("worst device").column("verdict");
  for (const ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
    table.row({use.gpu, grouped(use.need.value / kGib, 1), grouped(use.have.value / kGib, 1),
               percent(use.need.value / use.have.value),
               fmt::format("{} (pipeline {}, stage {})", use.device.value, use.pipeline, use.stage),
               !use.fits()     ? bad("does not fit")
               : is_tight(use) ? bad("fits, tight")
                               : good("fits")});
  }
  std::string text = section("Memory by GPU type", table.text(2));
  if (const auto& host = evaluation.memory.host) {
    text +=
        fmt::format("  host memory of node {}: {} of {} GiB for optimizer states: {}\n", host->node,
                    grouped(host->need.value / kGib, 1), grouped(host->have.value / kGib, 1),
                    host->fits() ? good("fits") : bad("does not fit"));
  }
  const auto& uses = evaluation.memory.by_gpu_type;
  if (evaluation.memory.fits() && std::any_of(uses.begin(), uses.end(), is_tight)) {
    text +=
        fmt::format("  tight: above {:.0f} % of a GPU's memory, fragmentation may not leave room\n",
                    100 * kTight);
  }
  return text;
}

namespace {

/// A row for each time at which pipelines end.
void add_pipelines(const models::Evaluation& evaluation, bool full, Table& facts) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> rows;
  const std::vector<Seconds>& ends = evaluation.pipeline_times;
  for (std::size_t p = 0; p < ends.size(); ++p) {
    const std::string time = seconds_cell(ends[p].value);
    const auto equal =
        std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == time; });
    if (!full && equal != rows.end()) {
      equal->second.push_back(p);
    } else {
      rows.push_back({time, {p}});
    }
  }
  if (!full && rows.size() > kRowsShown) {
    const auto [first, last] = std::minmax_element(ends.begin(), ends.end());
    facts.row({fmt::format("first pipeline to end: {}", first - ends.begin()),
               seconds_cell(first->value), "s"});
    facts.row({fmt::format("last pipeline to end: {}", last - ends.begin()),
               seconds_cell(last->value), "s"});
    return;
  }
  for (const auto& [time, pipelines] : rows) {
    facts.row(
        {fmt::format("{} {}", pipelines.size() > 1 ? "pipelines" : "pipeline", ranges(pipelines)),
         time, "s"});
  }
}

/// What tokens cost: the GPUs that the plan uses, and the whole cluster where that is more.
void add_prices(Dollars used, const experiments::LoadedRun& run, const ir::Plan& plan,
                Table& facts) {
  const std::vector<DeviceId> devices = ir::devices_of(plan);
  facts.row({"cost", fmt::format("${:.3f}", used.value),
             fmt::format("per million tokens ({})",
                         price_source(run.spec.hardware, devices, run.cluster))});
  if (std::ssize(devices) == run.cluster.size()) return;
  const std::optional<Dollars> whole = experiments::cluster_dollars(used, run.cluster, devices);
  if (!whole) return;
  facts.row({"cost of the cluster", fmt::format("${:.3f}", whole->value),
             fmt::format("per million tokens, idle GPUs paid as well ({} of {} used)",
                         devices.size(), run.cluster.size())});
}

/// The GPU types without a price, as what to ask for.
std::string missing_prices(const ir::Plan& plan, const models::Cluster& cluster) {
  std::set<std::string> types;
  for (const DeviceId device : ir::devices_of(plan)) {
    if (!cluster.gpu(device).price) types.insert(cluster.gpu(device).name);
  }
  return fmt::format("(no price of {}: --price {}=$/h)", fmt::join(types, ", "), *types.begin());
}

}  // namespace

std::string evaluation_text(const models::Evaluation& evaluation, const experiments::LoadedRun& run,
                            const ir::Plan& plan, bool full) {
  std::string text = bold("Iteration") + "\n";
  Table facts;
  facts.column("").number("").column("");
  add_pipelines(evaluation, full, facts);
  if (evaluation.synchronization) {
    facts.row({"synchronization", seconds_cell(evaluation.synchronization->value), "s"});
  }
  facts.row({"iteration time", seconds_cell(evaluation.iteration_time.value), "s"});
  facts.row({"throughput", grouped(evaluation.tokens_per_second, 1), "tokens/s"});
  facts.row({"MFU", fmt::format("{:.1f}", 100 * evaluation.mfu), "%"});
  facts.row({"HFU", fmt::format("{:.1f}", 100 * evaluation.hfu), "%"});
  if (evaluation.dollars_per_million_tokens) {
    add_prices(*evaluation.dollars_per_million_tokens, run, plan, facts);
  } else {
    facts.row({"cost", "-", missing_prices(plan, run.cluster)});
  }
  if (evaluation.joules_per_token) {
    facts.row({"energy",
               fmt::format("{:.4g}", kwh_per_million_tokens(*evaluation.joules_per_token)),
               "kWh per million tokens (what the GPUs' boards may draw)"});
  }
  const std::string body = facts.text(2);
  text += body.substr(body.find('\n') + 1);

  std::vector<std::pair<const char*, double>> parts = {
      {"compute", evaluation.breakdown.compute.value},
      {"tensor parallelism", evaluation.breakdown.tensor_parallel.value},
      {"pipeline transfers", evaluation.breakdown.pipeline.value},
      {"data parallelism", evaluation.breakdown.data_parallel.value},
      {"optimizer", evaluation.breakdown.optimizer.value},
      {"bubble", evaluation.breakdown.bubble.value}};
  if (const double zero = evaluation.breakdown.zero.value; zero > 0) {
    parts.insert(parts.begin() + 2, {"gathers of parameters (ZeRO-3)", zero});
  }
  double sum = 0;
  for (const auto& part : parts) sum += part.second;
  if (sum > 0) {
    Table breakdown;
    breakdown.column("mean over GPUs").number("s").number("share");
    for (const auto& [name, seconds] : parts) {
      breakdown.row({name, seconds_cell(seconds), percent(seconds / sum)});
    }
    text += fmt::format("\n{}", section("Where the time goes", breakdown.text(2)));
  }
  if (!evaluation.memory.by_gpu_type.empty()) text += fmt::format("\n{}", memory_text(evaluation));
  return text;
}

std::string infeasible_text(const models::Infeasible& infeasible) {
  std::string text = fmt::format("{} ({})\n", bad("no plan"), infeasible.constraint);
  if (!infeasible.witness.empty()) text += fmt::format("  for example {}\n", infeasible.witness);
  return text;
}

std::string lines_text(const std::vector<std::string>& lines, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < most; ++i)
    text += fmt::format("  {}\n", lines[i]);
  if (lines.size() > most) {
    text += fmt::format("  ... and {} more (--json shows all)\n", lines.size() - most);
  }
  return text;
}

}  // namespace orrery::tools
