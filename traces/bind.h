/// Traces for clusters: which node of the cluster each node of a trace is.
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/spec/cluster.h"
#include "traces/trace.h"

namespace orrery::traces {

/// The trace with exactly the cluster's nodes and device ids. A node of the trace becomes
/// - the cluster's node of the same name, if the cluster has all the trace's names;
/// - else, if the trace says the GPU type of every node, the cluster's next node of that type, in
///   order;
/// - else the cluster's next node.
/// Nodes of the cluster that the trace does not have never change. A node of one GPU, which is what
/// formats without counts have, may stand for a node of any size (a VM of one GPU for a node of
/// eight). Problems, at `asked_at`: more nodes than the cluster has (of the type), a type that it
/// does not have, nodes of several GPUs that become nodes of another number, devices and links that
/// it does not have. Then the result is incomplete. `mapping`, unless null, is told in words which
/// node became which; "" where the names are the same.
Trace bind(const Trace& trace, const models::Cluster& cluster, config::Position asked_at,
           config::Diagnostics& diagnostics, std::string* mapping = nullptr);

/// The cluster's nodes as a trace counts them; a node of several GPU types has none.
std::vector<TraceNode> nodes_of(const models::Cluster& cluster);

/// One trace from several, for example one per GPU type: all their nodes in order, all their
/// events; it ends with the shortest of them. If names clash, those of trace i get "ti-" in front.
/// `traces` is not empty. Events of the job are events of the whole.
Trace combine(const std::vector<Trace>& traces);

}  // namespace orrery::traces
