#include "models/sharding/specialize.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace orrery::models {
namespace {

/// Where the tensors of the graph lie.
struct Placement {
  std::vector<std::map<int, Box>> boxes;  ///< By tensor and device.
};

Placement place(const Graph& graph, const std::vector<Shape>& shapes) {
  Placement placement;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    std::map<int, Box> boxes;
    for (BoxPiece& piece : pieces(graph.tensors[t].type.annotation, shapes[t])) {
      boxes.emplace(piece.device, std::move(piece.box));
    }
    placement.boxes.push_back(std::move(boxes));
  }
  return placement;
}

const Box* box_on(const Placement& placement, int tensor, int device) {
  const auto& boxes = placement.boxes[tensor];
  const auto found = boxes.find(device);
  return found == boxes.end() ? nullptr : &found->second;
}

/// Puts the steps of a CommOp, or the operator itself, on the devices that take part.
void instantiate(const GraphOperator& operation, int index, int communication,
                 const Placement& placement, SpecializedGraph& result) {
  const auto add = [&](int device, int step) {
    const Box* part = box_on(placement, operation.output, device);
    result.devices[device].push_back({index, communication, step, part ? *part : Box{}});
  };
  if (communication < 0) {
    for (const auto& [device, box] : placement.boxes[operation.output]) {
      add(device, -1);
    }
    return;
  }
  const auto& steps = result.communications[communication].steps;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const int device : steps[s].devices) add(device, static_cast<int>(s));
  }
}

}  // namespace

std::variant<SpecializedGraph, GraphProblem> specialize(const Graph& graph, const Binding& values,
                                                        const BatchedOptions& options) {
  auto shapes = bind(graph, values);
  if (auto* problem = std::get_if<GraphProblem>(&shapes)) return std::move(*problem);
  SpecializedGraph result;
  result.shapes = std::get<std::vector<Shape>>(std::move(shapes));
  const Placement placement = place(graph, result.shapes);
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const GraphOperator& operation = graph.operators[i];
    int communication = -1;
    if (const auto* comm = std::get_if<CommunicationOperator>(&operation.type)) {
      const std::size_t input = operation.inputs.front();
      auto steps = communicate(graph.tensors[input].type.annotation, comm->target,
                               result.shapes[input], options);
      if (const auto* refusal = std::get_if<Refusal>(&steps)) {
        return GraphProblem{operation.name, 0,
                            fmt::format("{}: {}", operation.name, refusal->reason)};
      }
      communication = static_cast<int>(result.communications.size());
      result.communications.push_back({static_cast<int>(i), comm->frequency,
                                       graph.tensors[input].type.annotation, comm->target,
                                       std::get<std::vector<CommunicationStep>>(std::move(steps))});
    }
    instantiate(operation, static_cast<int>(i), communication, placement, result);
  }
  return result;
}

std::map<CommunicationKind, int> launches(const SpecializedGraph& graph, Frequency frequency) {
  std::map<CommunicationKind, int> counts;
  for (const auto& communication : graph.communications) {
    if (communication.frequency != frequency) continue;
    for (const CommunicationStep& step : communication.steps) {
      if (!step.moves.empty()) counts[step.kind] += static_cast<int>(groups(step).size());
    }
  }
  return counts;
}

}  // namespace orrery::models
