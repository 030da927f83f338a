/// Progressive specialization: from one annotated graph to what each device executes. Operators
/// without a tensor on the device are removed; each CommOp is replaced by the communication that
/// its two annotations resolve to. [Hetu v2, section 5.3]
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/sharding/communicate.h"
#include "models/sharding/graph.h"

namespace orrery::models {

/// A CommOp and what it resolves to.
struct ResolvedCommunication {
  int operation = 0;  ///< Index into Graph::operators.
  Frequency frequency = Frequency::micro_batch;
  Annotation from;
  Annotation to;
  std::vector<CommunicationStep> steps;
};

/// An operator on one device.
struct LocalOperator {
  int operation = 0;       ///< Index into Graph::operators.
  int communication = -1;  ///< Index into SpecializedGraph::communications; else it computes.
  int step = -1;           ///< Of the communication.
  Box part;                ///< The part of the operator's output that lies here; empty where none.
};

struct SpecializedGraph {
  std::vector<Shape> shapes;  ///< Of the tensors, bound.
  std::vector<ResolvedCommunication> communications;
  std::map<int, std::vector<LocalOperator>> devices;  ///< In execution order.
};

/// `values` binds the symbols. Problems: a shape that does not bind, a CommOp that is refused.
/// Needs deduce() before.
std::variant<SpecializedGraph, GraphProblem> specialize(const Graph& graph, const Binding& values,
                                                        const BatchedOptions& options = {});

/// How many launches of each kind the communications of one frequency have, identities aside: a
/// launch is one kind on one list of devices (collectives) or one pair (sends).
std::map<CommunicationKind, int> launches(const SpecializedGraph& graph, Frequency frequency);

}  // namespace orrery::models
