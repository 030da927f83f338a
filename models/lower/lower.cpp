#include "models/lower/lower.h"

#include "models/base/check.h"
#include "models/lower/draft.h"
#include "models/lower/passes.h"
#include "models/lower/placement.h"

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
  header.collapsed = options.collapsed;
  header.cluster_hash = plan.cluster_hash;
  header.workload_hash = plan.workload_hash;
  return header;
}

}  // namespace

ir::Program lower(const ir::Plan& plan, const Cluster& cluster, const Workload& workload,
                  const Job& job, const LowerOptions& options) {
  ORRERY_CHECK(!plan.pipelines.empty(), "a plan without pipelines");
  const Placement placement = place(plan, cluster, options.collapsed);
  const LowerContext context = {plan, cluster, workload, job, placement};
  Draft draft;
  draft.program.header = make_header(plan, workload, job, options);
  draft.program.ranks = placement.ranks;
  draft.program.segments = placement.segments;
  std::int64_t first_sample = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    draft.program.pipelines.push_back(
        {first_sample, pipeline.micro_batches, pipeline.micro_batch_size});
    first_sample += std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size;
  }
  std::vector<ComputeOps> ops;
  for (int p = 0; p < static_cast<int>(plan.pipelines.size()); ++p) {
    ops.push_back(add_compute(context, p, draft));
    add_transfers(context, p, ops.back(), draft);
  }
  add_synchronisation(context, ops, draft);
  return draft.finish();
}

}  // namespace orrery::models
