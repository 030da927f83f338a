// Does the model train on the kernels of the CUDA back end as it does on the CPU? Here they run in
// loops on the host; bf16 is tested nowhere else without a GPU.
#include "executor/cuda/ordered_transport.h"
#include "tests/executor/cuda/host_device.h"
#include "tests/executor/cuda/pipe_exchange.h"
#include "tests/executor/engine/equality_checks.h"

namespace orrery::executor::host_equality_test {
namespace {

TrainingOptions on_host(Precision precision) {
  TrainingOptions options;
  options.precision = precision;
  options.steps = 10;
  options.backend = [precision](int) { return make_host_lanes_backend(precision); };
  return options;
}

TEST(HostLanes, TrainAsOneDeviceInDoublePrecision) {
  expect_plans_equal(on_host(Precision::fp64), {}, 0, 8);
}

TEST(HostLanes, TrainAsOneDeviceInSinglePrecision) {
  expect_plans_equal(on_host(Precision::fp32), {ir::Activation::gelu}, 20, 6);
}

TEST(HostLanes, TrainGptAsOneDevice) {
  expect_plans_equal(on_host(Precision::fp64), kTinyGpt, 60, 4);
}

TEST(HostLanes, TrainInPartsOfTheSequenceAsOneDevice) {
  expect_plans_equal(on_host(Precision::fp64), {}, 80, 4, divided_training_plan);
  expect_plans_equal(on_host(Precision::bf16), {}, 84, 4, divided_training_plan);
}

TEST(HostLanes, TrainExpertsAsOneDevice) {
  expect_plans_equal(on_host(Precision::fp64), {.experts = 4}, 90, 4, divided_training_plan);
}

TEST(HostLanes, TrainAsOneDeviceInBf16WithMasterWeights) {
  expect_plans_equal(on_host(Precision::bf16), {}, 40, 8);
}

/// A transport that belongs to someone else.
class Lent final : public Transport {
 public:
  explicit Lent(Transport& owner) : owner_(owner) {}
  int rank() const override { return owner_.rank(); }
  int size() const override { return owner_.size(); }
  RequestPointer send(int peer, Tag tag, std::span<const std::byte> data) override {
    return owner_.send(peer, tag, data);
  }
  RequestPointer receive(int peer, Tag tag, std::span<std::byte> into) override {
    return owner_.receive(peer, tag, into);
  }
  void set_deadline(std::chrono::milliseconds timeout) override { owner_.set_deadline(timeout); }
  void abort(const std::string& reason) override { owner_.abort(reason); }
  std::vector<LinkTraffic> traffic() const override { return owner_.traffic(); }
  std::string name() const override { return owner_.name(); }

 private:
  Transport& owner_;
};

TEST(OrderedTransport, CarriesWholeTrainingRunsBitForBit) {
  const models::Workload workload = tiny_workload();
  for (const std::uint64_t seed : {3u, 8u, 21u}) {
    const ir::Program program = lower_for_executor(random_training_plan(seed, workload), workload);
    TrainingOptions options;
    options.steps = 2;
    const TrainingRun direct = train(program, options);
    Pipes pipes;
    options.over = [&pipes](Transport& mesh) {
      auto over = make_ordered_transport(std::make_unique<Lent>(mesh),
                                         std::make_unique<PipeMaker>(pipes), "pipes");
      over->set_deadline(std::chrono::milliseconds(20'000));
      return over;
    };
    const TrainingRun piped = train(program, options);
    EXPECT_EQ(piped.losses, direct.losses);
    EXPECT_EQ(piped.gradients, direct.gradients);
    EXPECT_EQ(piped.weights, direct.weights);
    EXPECT_EQ(program.ranks.size() > 1, pipes.drawn > 0);
  }
}

}  // namespace
}  // namespace orrery::executor::host_equality_test
