#include <gtest/gtest.h>

#include <algorithm>

#include "models/cost/pricer.h"
#include "tests/worlds/clusters.h"

namespace orrery::models::calibrated_pricer_test {
namespace {

using ir::Pass;

/// Two layers of 1 s forward on one device; a program of one rank with a pass over both, an
/// optimizer step and a checkpoint.
class CalibratedPricer : public ::testing::Test {
 protected:
  CalibratedPricer() {
    workload_.shape.name = "toy";
    workload_.sequence_length = 128;
    Block layer;
    layer.forward_flops = Flops{50e12};
    layer.parameters = {{"matrix", 1'000'000, 8}};
    workload_.blocks = {layer, layer};
    ir::SegmentInfo segment;
    segment.first_block = {0};
    segment.last_block = {1};
    program_.segments = {segment};
    ir::Rank rank;
    rank.device = {0};
    rank.devices = {{0}};
    program_.ranks = {rank};
    for (const ir::OpKind kind :
         {ir::OpKind::forward, ir::OpKind::backward, ir::OpKind::optimizer_step,
          ir::OpKind::save_state, ir::OpKind::load_state, ir::OpKind::send}) {
      ir::Op op;
      op.kind = kind;
      op.rank = {0};
      op.segment = 0;
      op.samples = 1;
      op.bytes = Bytes{4e9};
      op.location = ir::Location::nvme;
      program_.ops.push_back(op);
    }
  }
  double price(std::size_t op) const {
    return Pricer(cluster_, workload_, job_, profile_).compute(program_, program_.ops[op]).value;
  }
  bool uses(const std::string& line) const {
    const Pricer pricer(cluster_, workload_, job_, profile_);
    const ProgramPrices prices(program_, pricer);
    const auto lines = pricer.used_entries();
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }

  Cluster cluster_ = worlds::bare_cluster({{0}}, {worlds::round_gpu()});
  Workload workload_;
  Job job_;
  ir::Profile profile_;
  ir::Program program_;
};

TEST_F(CalibratedPricer, AnOverheadIsPaidOncePerOpAndPass) {
  const double forward = price(0), backward = price(1), step = price(2);
  profile_.pass_overheads = {{"round", Pass::forward, Seconds{0.25}, {}},
                             {"round", Pass::optimizer, Seconds{0.5}, {}},
                             {"other", Pass::backward, Seconds{9}, {}}};
  EXPECT_DOUBLE_EQ(price(0), forward + 0.25);
  EXPECT_DOUBLE_EQ(price(1), backward);
  EXPECT_DOUBLE_EQ(price(2), step + 0.5);
  EXPECT_EQ(price(5), 0) << "a send computes nothing";
  EXPECT_TRUE(uses("profile: round forward overhead of each op"));
  EXPECT_FALSE(uses("profile: other backward overhead of each op"));
}

TEST_F(CalibratedPricer, ARankLosesToOverlapWhatItsGpuTypeDoes) {
  profile_.overlap_losses = {{"round", 0.125, {}}, {"other", 0.5, {}}};
  EXPECT_FALSE(uses("profile: round at 12.5 % less speed beside collectives"))
      << "the program has none";
  program_.collectives.emplace_back();
  EXPECT_TRUE(uses("profile: round at 12.5 % less speed beside collectives"));
  const Pricer pricer(cluster_, workload_, job_, profile_);
  EXPECT_EQ(ProgramPrices(program_, pricer).overlap_loss({0}), 0.125);
  EXPECT_EQ(ProgramPrices(std::vector<Seconds>(program_.ops.size())).overlap_loss({0}), 0);
  EXPECT_DOUBLE_EQ(price(0),
                   Pricer(cluster_, workload_, job_, {}).compute(program_, program_.ops[0]).value)
      << "prices are of passes that nothing disturbs";
}

TEST_F(CalibratedPricer, OfWhatTheJobOverlapsTheProfilesShareIsExposedElseADeclaredOne) {
  program_.groups = {{{{0}}}};
  const auto inner = [](ir::Purpose purpose) {
    return ir::InnerCollective{ir::CollectiveKind::all_reduce, purpose, {0}, 1, Bytes{1}, {}};
  };
  program_.inner_sets = {{inner(ir::Purpose::tensor_parallel), inner(ir::Purpose::zero)},
                         {inner(ir::Purpose::expert_parallel)}};
  profile_.exposed_collectives = {{"round", ir::Purpose::tensor_parallel, 0.375, {}},
                                  {"other", ir::Purpose::zero, 0.75, {}}};
  const auto exposed = [&] {
    const ProgramPrices prices(program_, Pricer(cluster_, workload_, job_, profile_));
    return std::vector<double>{prices.exposed(0, 0), prices.exposed(0, 1), prices.exposed(1, 0)};
  };
  EXPECT_EQ(exposed(), (std::vector<double>{1, 1, 1}));
  job_.hidden_collectives = {ir::Purpose::tensor_parallel, ir::Purpose::zero};
  EXPECT_EQ(exposed(), (std::vector<double>{0.375, 0.1, 1}));
  job_.hidden_collectives = {ir::Purpose::expert_parallel};
  EXPECT_EQ(exposed(), (std::vector<double>{1, 1, 0}));
  job_.hidden_collectives = {ir::Purpose::tensor_parallel, ir::Purpose::zero};
  EXPECT_TRUE(uses("profile: round 38 % of tensor_parallel collectives exposed"));
  EXPECT_TRUE(uses("declared: round 10 % of zero collectives exposed"));
}

TEST_F(CalibratedPricer, AMeasuredOptimizerReplacesTheSweep) {
  profile_.optimizers = {{"round", ir::Dtype::fp32, Seconds{7}, Seconds{7}, {}},
                         {"round", ir::Dtype::bf16, Seconds{0.5}, Seconds{1e-6}, {}}};
  EXPECT_DOUBLE_EQ(price(2), 0.5 + 2e6 * 1e-6);
  const Pricer pricer(cluster_, workload_, job_, profile_);
  EXPECT_DOUBLE_EQ(pricer.optimizer(0, 3e6).value, 3.5);
  EXPECT_TRUE(uses("profile: round optimizer step bf16"));
}

TEST_F(CalibratedPricer, CheckpointsTakeTheMeasuredTimeOfTheirDirection) {
  const OpId save{3}, load{4}, send{5};
  EXPECT_FALSE(ProgramPrices(program_, Pricer(cluster_, workload_, job_, profile_))
                   .storage(save)
                   .has_value());
  profile_.storage = {{"nvme", true, Seconds{1}, BytesPerSecond{2e9}, {}},
                      {"cloud", false, Seconds{1}, BytesPerSecond{2e9}, {}}};
  const ProgramPrices prices(program_, Pricer(cluster_, workload_, job_, profile_));
  EXPECT_DOUBLE_EQ(prices.storage(save)->value, 3);
  EXPECT_FALSE(prices.storage(load).has_value());
  EXPECT_FALSE(prices.storage(send).has_value());
  EXPECT_TRUE(uses("profile: writing to nvme"));
  program_.ops[3].location = ir::Location::peer;
  EXPECT_FALSE(ProgramPrices(program_, Pricer(cluster_, workload_, job_, profile_))
                   .storage(save)
                   .has_value())
      << "between peers there are flows";
}

}  // namespace
}  // namespace orrery::models::calibrated_pricer_test
