/// A tiny cluster with storage, a small job and an evaluator for tests of recovery policies, and
/// the life of a job on it: events fire, the policy answers, what survives is the input of
/// the next answer. No simulator, no clock.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/base/rng.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/recovery.h"
#include "tests/planners/support.h"

namespace orrery::planners {

/// `machines` with 1 TB of host memory, NVMe of 3.5 and 2 GB/s, and shared object storage of
/// 1.2 GB/s.
models::Cluster with_storage(models::Cluster cluster);

/// Four nodes A and two nodes B with two GPUs each, 4 layers, a batch of 8. `half`: two nodes A.
std::unique_ptr<World> recovery_world(bool half = false);

/// Equal nodes with storage.
struct EqualNodes {
  int nodes = 1;
  std::int64_t batch = 8;
  int gpus = 1;  ///< Of a node.
  double memory_gib = 24;
  int layers = 8;
};
std::unique_ptr<World> equal_nodes(const EqualNodes& shape);

/// The world as a policy sees it; one interruption a day.
PolicyInput policy_input(const World& world);

/// Makes the policy of the catalog; aborts on bad options, null where it is infeasible here.
std::unique_ptr<models::RecoveryPolicy> make_policy(const std::string& name,
                                                    const PolicyInput& input,
                                                    const Options& options = {});

/// All devices of the cluster.
std::vector<DeviceId> all_devices(const models::Cluster& cluster);

/// All devices of the cluster but these.
std::vector<DeviceId> all_but(const World& world, const std::vector<int>& lost);

/// A plan of equal pipelines on devices in id order: data-parallel `replicas` (a pipeline each),
/// `stages`, tensor-parallel degree; the batch divides.
ir::Plan uniform_plan(const World& world, int replicas, int stages, int tensor);

/// One job under one policy. Between events iterations pass; checkpoints are persisted at once.
class JobLife {
 public:
  JobLife(const World& world, const PolicyInput& input, const models::RecoveryPolicy& policy);

  /// What the policy would be told now.
  const models::JobState& state() const { return state_; }
  /// Iterations pass while it trains, levels of checkpoints leave their last two copies.
  void train(std::int64_t iterations);
  /// The event hits the cluster, the policy is asked; what is wrong with its answer, one line each.
  /// The answer is carried out: to the end, or (interrupted) to where the devices have been stopped
  /// and nothing has been loaded yet.
  std::string fire(const ir::ClusterEvent& event, bool interrupted = false);

  const models::RecoveryDecision& decision() const { return decision_; }
  bool waiting() const { return !state_.training; }

 private:
  void hit(const ir::ClusterEvent& event);
  void lose_device(DeviceId device, bool node);
  void set_gpu_copy(std::int64_t iteration);
  void sort_copies();
  std::string laws(const models::JobState& told, const ir::ClusterEvent& event) const;
  void carry_out(bool interrupted);

  const World& world_;
  const PolicyInput& input_;
  const models::RecoveryPolicy& policy_;
  models::JobState state_;
  models::RecoveryDecision decision_;
  bool recovering_ = false;  ///< A recovery was interrupted.
};

/// A fixture: a policy's job on a world, with the constants of its paper, after 100 iterations.
class PolicyLife : public testing::Test {
 protected:
  void start(const std::string& name, std::unique_ptr<World> on, const Options& options = {},
             const std::optional<ir::Plan>& plan = {}) {
    world = std::move(on);
    input = std::make_unique<PolicyInput>(policy_input(*world));
    input->plan = plan;
    input->searches = &searches;
    Options all = {{"constants", "as_published"}};
    all.insert(all.end(), options.begin(), options.end());
    policy = make_policy(name, *input, all);
    ASSERT_NE(policy, nullptr);
    life = std::make_unique<JobLife>(*world, *input, *policy);
    life->train(100);
  }
  std::unique_ptr<World> world;
  std::unique_ptr<PolicyInput> input;
  std::unique_ptr<models::RecoveryPolicy> policy;
  std::unique_ptr<JobLife> life;
  std::int64_t searches = 0;
};

/// Events in random order that make sense for the state: losses of devices and nodes, preemptions
/// with and without notice, returns, slow devices, failures of the job.
class RandomEvents {
 public:
  RandomEvents(const models::Cluster& cluster, std::uint64_t seed)
      : cluster_(cluster), rng_(seed) {}
  ir::ClusterEvent next(const models::JobState& state);
  Rng& rng() { return rng_; }

 private:
  const models::Cluster& cluster_;
  Rng rng_;
};

/// What is wrong with a plan, whatever policy made it: defects, memory, devices that are not live.
std::string plan_faults(const World& world, const ir::Plan& plan,
                        const std::vector<DeviceId>& live);

/// What is wrong with the phases and transfers of a decision that resumes.
std::string decision_faults(const models::Cluster& cluster, const models::JobState& told,
                            const models::RecoveryDecision& decision);

/// What is wrong with levels of checkpoints.
std::string level_faults(const World& world, const ir::Plan& plan,
                         const std::vector<models::CheckpointLevel>& levels);

ir::ClusterEvent node_event(ir::EventKind kind, int node);
ir::ClusterEvent device_event(ir::EventKind kind, int device);

}  // namespace orrery::planners
