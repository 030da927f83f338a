/// What is trained on what: the values that most functions of C++ take by reference, kept together.
#pragma once
#include <memory>
#include <optional>

#include "models/base/check.h"
#include "models/cost/path_function.h"
#include "models/cost/pricer.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"
#include "tools/python/caster.h"

namespace orrery::python {

using ClusterPointer = std::shared_ptr<const models::Cluster>;
using WorkloadPointer = std::shared_ptr<const models::Workload>;
using JobPointer = std::shared_ptr<const models::Job>;
using ProfilePointer = std::shared_ptr<const ir::Profile>;

/// None of them is null. Not for concurrent use.
class Context {
 public:
  Context(ClusterPointer cluster, WorkloadPointer workload, JobPointer job, ProfilePointer profile)
      : cluster_(std::move(cluster)),
        workload_(std::move(workload)),
        job_(std::move(job)),
        profile_(std::move(profile)) {}

  const models::Cluster& cluster() const { return *cluster_; }
  const models::Workload& workload() const { return *workload_; }
  const models::Job& job() const { return *job_; }
  const ir::Profile& profile() const { return *profile_; }
  const ClusterPointer& cluster_pointer() const { return cluster_; }
  const WorkloadPointer& workload_pointer() const { return workload_; }
  const JobPointer& job_pointer() const { return job_; }
  const ProfilePointer& profile_pointer() const { return profile_; }
  const models::Pricer& pricer() const {
    if (!pricer_) pricer_.emplace(*cluster_, *workload_, *job_, *profile_);
    return *pricer_;
  }
  const models::Topology& topology() const {
    if (!topology_) topology_.emplace(*cluster_, *profile_);
    return *topology_;
  }

 private:
  ClusterPointer cluster_;
  WorkloadPointer workload_;
  JobPointer job_;
  ProfilePointer profile_;
  mutable std::optional<models::Pricer> pricer_;
  mutable std::optional<models::Topology> topology_;
};

/// For what asks for no iteration time.
class NoEvaluator final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override {
    ORRERY_CHECK(false, "nothing here asks for an iteration time");
    return {};
  }
  std::string name() const override { return "none"; }
};

/// A link with its name.
struct Link {
  std::string name;
  std::string link_class;
  BytesPerSecond bandwidth;
  Seconds latency;
  bool uncontended = false;
};

/// A topology with the cluster that it was made from.
class NetworkTopology {
 public:
  NetworkTopology(ClusterPointer cluster, const ir::Profile& profile)
      : cluster_(std::move(cluster)), topology_(*cluster_, profile) {}
  const models::Topology* operator->() const { return &topology_; }
  const models::Cluster& cluster() const { return *cluster_; }
  std::vector<Link> links() const {
    std::vector<Link> out;
    for (const LinkId id : topology_.links().ids()) {
      const models::Link& link = topology_.links()[id];
      out.push_back(
          {topology_.name_of(id), link.link_class, link.bandwidth, link.latency, link.uncontended});
    }
    return out;
  }
  models::PathFunction path_function() const {
    return [this](DeviceId a, DeviceId b) { return topology_.path(a, b); };
  }

 private:
  ClusterPointer cluster_;
  models::Topology topology_;
};

/// Throws ConfigError with what validate() and find_unsupported() find; its places begin with
/// `where`.
void require_valid(const ir::Plan& plan, const Context& at, const std::string& where = "plan");

/// Throws what Python shows where a program that was built or changed in code is not well formed,
/// or names devices and blocks that are not there.
void check_program(const ir::Program& program);
void check_program(const ir::Program& program, const models::Cluster& cluster,
                   const models::Workload& workload);

}  // namespace orrery::python
