/// Folding: pipelines that do the same at the same time are simulated once. Pipelines, links, flows
/// and collectives are put into classes such that the members of a class meet the same numbers of
/// members of every other class (an equitable partition, found by refining colors). All of a class
/// then go through the same states, and one of each is enough: its flow occupies a link as often as
/// flows of its class cross each link of that class. What is not symmetric is simulated by itself,
/// down to the whole program. docs/equations.md has the condition and the proof.
///
/// Flows that share a link at different times do not meet. Where pipelines differ (one has a slow
/// device, one lacks a node) classes are first made as if the flows of pipelines met none of their
/// collectives; a run then shows which of them overlap on a link, those are held to meet, and so on
/// until a run shows no others.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/lower.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

/// What a partly built program (models::LowerOptions::built) leaves out, and how the built part
/// runs as if the rest were there.
struct Folding {
  /// By pipeline: the built one that does the same; a built one names itself.
  std::vector<int> representative;
  /// By pipeline: its devices; those of equal position in pipelines of one class do the same.
  std::vector<std::vector<DeviceId>> devices;

  /// A class of flows.
  struct Route {
    std::vector<LinkId> links;  ///< Each as often as flows of the class cross it.
    Seconds latency;            ///< Of the path between two devices; 0 where Flow has all of it.
  };
  std::vector<Route> routes;
  /// Inside built pipelines, by key(source, destination): index into `routes`, or ~ of it where
  /// another flow of the same class stands for this one: both are in the same transfers.
  std::unordered_map<std::uint64_t, std::int32_t> route_of_pair;
  static std::uint64_t key(DeviceId source, DeviceId destination) {
    return static_cast<std::uint64_t>(source.value) << 32 |
           static_cast<std::uint32_t>(destination.value);
  }

  /// Stands for all flows of a class in one collective among pipelines.
  struct Flow {
    std::int32_t route = 0;
    Bytes bytes;
    Seconds tail;  ///< The longest of its class, all latencies included.
  };
  /// By class of collectives. Those of one class that have members in the program are one.
  std::vector<std::vector<Flow>> collective_flows;
  /// By collective: its class; -1: its flows are of route_of_pair, or it has a closed form.
  std::vector<std::int32_t> class_of_collective;

  /// Every flow of the whole program, to count bytes: by which of `routes` it is simulated, and the
  /// first of its links in `crossed`, which end where those of the next one begin.
  struct Crossing {
    std::int32_t route = 0;
    std::uint32_t first_link = 0;
  };
  std::vector<Crossing> crossings;
  std::vector<LinkId> crossed;
  /// By rank: the one of a built pipeline that does the same.
  std::vector<RankId> same_rank;

  bool is_built(RankId rank) const { return same_rank[rank.index()] == rank; }
  int built() const;
};

/// When a flow on one of Folding::routes moved bytes.
struct FlowInterval {
  std::int32_t route = 0;
  int iteration = 0;  ///< Of those that were run one after the other.
  Seconds start;
  Seconds end;
};

/// A program of a plan, folded where that is exact and worth it.
class FoldedIteration {
 public:
  /// Folds unless options.fold says no: only aggregated rings, no jitter (each device has noise of
  /// its own) and nothing recorded by op (IterationOptions::record_spans, record_memory). Keeps
  /// references.
  FoldedIteration(const ir::Plan& plan, const models::Cluster& cluster,
                  const models::Topology& topology, const models::Workload& workload,
                  const models::Job& job, const models::LowerOptions& lower_options,
                  const IterationOptions& options);
  ~FoldedIteration();

  const ir::Program& program() const;
  ir::Program take_program();
  /// Of the whole program, whether it was built or not.
  std::int64_t whole_ops() const;
  /// Null: the program is whole.
  const Folding* folding() const;
  /// The program is a guess: what a run of it says is exact only if find_meetings() finds nothing
  /// in its flows.
  bool needs_check() const;
  /// What these flows of a run met beyond what they were held to meet, as bytes; empty: nothing.
  std::string find_meetings(const std::vector<FlowInterval>& flows);
  /// Makes another program that knows these meetings, too.
  void fold_again(std::string_view meetings);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::sim
