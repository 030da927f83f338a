/// From a row to a program that the simulator can run on a cluster of A100 nodes: the plan that the
/// row describes, its lowering, and two changes to the program.
///
/// - Tensor-parallel ranks send slices of an activation in parallel; of these, those behind one
///   adapter represent all: the others do the same at the same time on adapters of their own.
/// - Replicas beyond those on two nodes of a stage may be left out (`folded`): they do the same at
///   the same time. Rings that became shorter carry as much on each edge as the long ones did.
#pragma once
#include "experiments/validation/a100/row.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"

namespace orrery::experiments {

/// What a row becomes before it is lowered.
struct A100Case {
  models::Cluster cluster;
  models::Workload workload;
  models::Job job;
  ir::Plan plan;
  /// Data-parallel replicas in the plan: A100Row::dp, or fewer.
  int replicas = 1;
};

/// Replicas that a folded case has: those that share a stage's first two nodes.
int folded_replicas(const A100Row& row);

/// Nodes of eight "A100-80GB" on one NVSwitch ("nvlink3") with `nics_per_node` ports
/// "infiniband-200" on a fabric without bottleneck; link efficiencies from `parameters`. Ranks:
/// tensor-parallel neighbors first, then replicas, then stages [Megatron-LM's order].
A100Case make_case(const A100Row& row, const A100Parameters& parameters, bool folded,
                   const models::Library& library);

/// Collapsed lowering of the case, with all changes as above.
ir::Program make_program(const A100Row& row, const A100Case& made,
                         const models::Topology& topology);

/// Keeps of each set of equal transfers between two nodes, or inside one, those that share the
/// first one's adapter.
void thin_transfers(ir::Program& program, const models::Cluster& cluster,
                    const models::Topology& topology);

/// Scales gradient collectives so that each edge carries what it would with `factor` times as many
/// members.
void lengthen_rings(ir::Program& program, double factor);

}  // namespace orrery::experiments
