#include "models/lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "models/base/check.h"
#include "models/ir/names.h"
#include "models/lower/block_replicas.h"
#include "models/lower/passes.h"
#include "models/lower/placement.h"
#include "models/lower/program_builder.h"
#include "models/lower/zero_gathers.h"
#include "models/schedule/rounds.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

ir::ProgramHeader make_header(const ir::Plan& plan, const Workload& workload, const Job& job,
                              const LowerOptions& options) {
  ir::ProgramHeader header;
  header.model = workload.shape;
  for (const Block& block : workload.blocks) header.blocks.push_back(block.kind);
  header.sequence_length = workload.sequence_length;
  header.global_batch = ir::global_batch(plan);
  header.dtype = workload.dtype;
  header.optimizer = job.optimizer;
  header.seed = options.seed;
  header.schedule = plan.schedule;
  header.optimizer_start = plan.optimizer;
  header.optimizer_offload = plan.optimizer_offload;
  header.collapsed = options.collapsed;
  header.cluster_hash = plan.cluster_hash;
  header.workload_hash = plan.workload_hash;
  return header;
}

/// Optimizer shards on devices that do not run would be lost.
void check_idle_stages(const ir::Plan& plan, std::vector<PlanDefect>& defects) {
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const ir::Pipeline& pipeline = plan.pipelines[p];
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const ir::Segment& segment = pipeline.stages[s].segments.front();
      if (!segment.zero.shards_optimizer()) continue;
      if (!is_idle(plan, static_cast<int>(p), static_cast<int>(s))) continue;
      defects.push_back({fmt::format("pipelines[{}].stages[{}]", p, s),
                         "a stage that leaves all micro-batches to others cannot keep ZeRO shards",
                         "set zero stage 0 for its blocks"});
    }
  }
}

}  // namespace

std::vector<PlanDefect> find_unsupported(const ir::Plan& plan) {
  std::vector<PlanDefect> defects;
  const ScheduleEntry* schedule = find_schedule(plan.schedule);
  if (schedule == nullptr) {
    std::string known;
    for (const ScheduleEntry* entry : schedules()) {
      known += (known.empty() ? "" : ", ") + std::string(ir::name_of(entry->kind));
    }
    defects.push_back({"schedule",
                       std::string("schedule ") + ir::name_of(plan.schedule) +
                           " cannot be turned into a program yet",
                       "available: " + known});
  }
  for (PlanDefect& defect : find_redundancy_defects(plan)) defects.push_back(std::move(defect));
  check_idle_stages(plan, defects);
  if (plan.communication.parameter_overlap && !plan.communication.gradient_overlap) {
    defects.push_back({"communication.parameter_overlap",
                       "gathers of parameters that overlap go bucket by bucket, as gradients do",
                       "set gradient_overlap, too"});
  }
  if (plan.optimizer_offload > 0 && plan.redundancy != ir::Redundancy::none) {
    defects.push_back({"optimizer_offload",
                       "optimizer states in host memory with redundant copies of stages, whose "
                       "states are on the devices",
                       "leave one of the two out"});
  }
  return defects;
}

ir::Program lower(const ir::Plan& plan, const Cluster& cluster, const Workload& workload,
                  const Job& job, const LowerOptions& options, PartialProgram* partial) {
  ORRERY_CHECK(!plan.pipelines.empty(), "a plan without pipelines");
  const std::vector<PlanDefect> unsupported = find_unsupported(plan);
  ORRERY_CHECK(unsupported.empty(), "{}: {}", unsupported.front().path, unsupported.front().what);
  const Placement placement = place(plan, cluster, options.collapsed);
  const BlockReplicas replicas(workload, placement);
  ORRERY_CHECK(options.built.empty() || options.built.size() == plan.pipelines.size(),
               "{} pipelines, {} choices", plan.pipelines.size(), options.built.size());
  const LowerContext context = {plan,
                                workload,
                                job,
                                placement,
                                replicas,
                                options.built,
                                gradient_rounds(plan, job.gradient_synchronizations)};
  ProgramBuilder builder;
  builder.program.header = make_header(plan, workload, job, options);
  builder.program.ranks = placement.ranks;
  builder.program.segments = placement.segments;
  std::int64_t first_sample = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    builder.program.pipelines.push_back(
        {first_sample, pipeline.micro_batches, pipeline.micro_batch_size});
    first_sample += std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size;
  }
  const ZeroGathers gathers(workload, replicas, job.state_bytes.weight);
  std::vector<ComputeOps> ops = add_compute(context, gathers, builder);
  KnownTransfers known;
  for (int p = 0; p < static_cast<int>(plan.pipelines.size()); ++p) {
    if (context.builds(p)) add_transfers(context, p, known, ops[p], builder);
  }
  PartialProgram left_out;
  add_synchronization(context, ops, builder, left_out);
  if (partial != nullptr) *partial = std::move(left_out);
  return builder.finish();
}

}  // namespace orrery::models
