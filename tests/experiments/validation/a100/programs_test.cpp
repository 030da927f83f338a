#include "experiments/validation/a100/programs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>

#include "experiments/validation/a100/simulate.h"
#include "models/check/validate.h"
#include "models/ir/program.h"
#include "models/lower/lower.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::programs_test {
namespace {

using support::library;

A100Row small(int tp, int pp, int dp) {
  A100Row row;
  row.id = "small";
  row.layers = 8;
  row.hidden = 1024;
  row.heads = 16;
  row.sequence = 1024;
  row.vocabulary = 50304;
  row.tp = tp;
  row.pp = pp;
  row.dp = dp;
  row.micro_batch = 2;
  row.global_batch = std::int64_t{8} * dp;
  row.nics_per_node = 4;
  return row;
}

Seconds time_of(const A100Row& row, bool folded) {
  return simulate({{&row, declared_a100_parameters()}}, library(), {folded, 1, {}})
      .front()
      .iteration;
}

/// Transfers of all sends between stages.
std::size_t slices(const ir::Program& program) {
  std::size_t count = 0;
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::send || op.purpose != ir::Purpose::pipeline) continue;
    count += program.transfer_sets[static_cast<std::size_t>(op.transfers)].size();
  }
  return count;
}

TEST(MakeCase, PlansAreValid) {
  A100Row interleaved = small(8, 2, 3);
  interleaved.virtual_stages = 2;
  interleaved.recompute = ir::Recompute::selective;
  interleaved.sequence_parallel = true;
  for (const A100Row& row : {small(1, 2, 16), small(4, 2, 8), small(16, 1, 4), interleaved}) {
    const A100Case made = make_case(row, declared_a100_parameters(), false, library());
    for (const auto& defect : models::validate(made.plan, made.cluster, made.workload, made.job)) {
      ADD_FAILURE() << defect.path << ": " << defect.what;
    }
    const models::Topology topology(made.cluster);
    EXPECT_EQ(ir::find_defect(make_program(row, made, topology)), "");
  }
}

TEST(ThinTransfers, TakesTheTimeOfAllSlices) {
  for (const A100Row& row : {small(8, 4, 2), small(4, 4, 4), small(2, 8, 4)}) {
    const A100Case made = make_case(row, declared_a100_parameters(), false, library());
    const models::Topology topology(made.cluster);
    const ir::Program all = models::lower(made.plan, made.cluster, made.workload, made.job, {});
    ir::Program thin = all;
    thin_transfers(thin, made.cluster, topology);
    // Two neighbors share an adapter: both of their slices stay.
    EXPECT_EQ(slices(all), slices(thin) * static_cast<std::size_t>(row.tp) / 2);
    const auto time = [&](const ir::Program& program) {
      const auto run = sim::run_forked([&] {
        sim::IterationSimulator simulator(made.cluster, topology, false);
        const models::ProgramPrices prices(op_times(row, declared_a100_parameters(),
                                                    made.cluster.gpu_types.front(), program,
                                                    made.job.state_bytes.total()));
        return fmt::format("{}", simulator.run(program, prices, {}).iteration_time.value);
      });
      return std::stod(std::get<std::string>(run));
    };
    EXPECT_NEAR(time(thin) / time(all), 1, 1e-9) << "tp " << row.tp << " pp " << row.pp;
  }
}

TEST(Folding, TakesTheTimeOfAllReplicas) {
  for (const A100Row& row : {small(8, 2, 6), small(4, 2, 8), small(2, 1, 16), small(1, 2, 32)}) {
    EXPECT_LT(folded_replicas(row), row.dp);
    const double whole = time_of(row, false).value;
    EXPECT_NEAR(time_of(row, true).value, whole, 0.01 * whole)
        << "tp " << row.tp << " dp " << row.dp;
  }
}

TEST(Folding, LeavesRowsOnTwoNodesAlone) {
  EXPECT_EQ(folded_replicas(small(4, 2, 4)), 4);
  EXPECT_EQ(folded_replicas(small(8, 4, 1)), 1);
  EXPECT_EQ(folded_replicas(small(16, 1, 4)), 2);
}

}  // namespace
}  // namespace orrery::experiments::programs_test
