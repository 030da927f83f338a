#include "models/sharding/graph.h"

#include <fmt/format.h>

#include <utility>

#include "models/base/check.h"

namespace orrery::models {
namespace {

int append(Graph& graph, GraphOperator operation, TensorType type) {
  const int tensor = static_cast<int>(graph.tensors.size());
  for (const int input : operation.inputs) {
    ORRERY_CHECK(input >= 0 && input < tensor, "{} reads tensor {} of {}", operation.name, input,
                 tensor);
  }
  operation.output = tensor;
  graph.tensors.push_back({operation.name, std::move(type)});
  graph.operators.push_back(std::move(operation));
  return tensor;
}

GraphProblem problem_of(const GraphOperator& operation, int input, const std::string& reason) {
  return {operation.name, input, fmt::format("{}: {}", operation.name, reason)};
}

/// The structure of an annotation that the user gave.
std::optional<GraphProblem> check_given(const GraphOperator& operation, const TensorType& type) {
  const auto problem = validate_structure(type.annotation, static_cast<int>(type.shape.size()));
  if (!problem) return std::nullopt;
  return problem_of(operation, 0, "its annotation is invalid: " + *problem);
}

}  // namespace

int Graph::leaf(std::string name, SymbolicShape shape, Annotation annotation) {
  return append(*this, {std::move(name), Leaf{}, {}, -1},
                {std::move(shape), std::move(annotation)});
}

int Graph::communicate(std::string name, int input, Annotation target, Frequency frequency) {
  return append(*this,
                {std::move(name), CommunicationOperator{std::move(target), frequency}, {input}, -1},
                {});
}

int Graph::apply(std::string name, OperatorType type, std::vector<int> inputs) {
  ORRERY_CHECK(inputs.size() == inputs_of(type), "{} inputs for {}", inputs.size(), name_of(type));
  return append(*this, {std::move(name), std::move(type), std::move(inputs), -1}, {});
}

std::optional<GraphProblem> deduce(Graph& graph) {
  for (const GraphOperator& operation : graph.operators) {
    TensorType& output = graph.tensors[operation.output].type;
    std::vector<TensorType> inputs;
    for (const int input : operation.inputs) {
      inputs.push_back(graph.tensors[input].type);
    }
    if (const auto* type = std::get_if<OperatorType>(&operation.type)) {
      auto result = deduce(*type, inputs);
      if (const auto* problem = std::get_if<DeductionProblem>(&result)) {
        return problem_of(operation, problem->input, problem->reason);
      }
      output = std::get<TensorType>(std::move(result));
      continue;
    }
    if (const auto* comm = std::get_if<CommunicationOperator>(&operation.type)) {
      output = {inputs.front().shape, comm->target};
    }
    if (auto problem = check_given(operation, output)) return problem;
  }
  return std::nullopt;
}

std::variant<std::vector<Shape>, GraphProblem> bind(const Graph& graph, const Binding& values) {
  std::vector<Shape> shapes;
  for (const GraphOperator& operation : graph.operators) {
    const TensorType& type = graph.tensors[operation.output].type;
    auto shape = bind(type.shape, values);
    if (const auto* problem = std::get_if<Unbound>(&shape)) {
      return problem_of(operation, 0, problem->reason);
    }
    shapes.push_back(std::get<Shape>(std::move(shape)));
    if (const auto problem = validate(type.annotation, shapes.back())) {
      return problem_of(operation, 0, *problem);
    }
  }
  return shapes;
}

}  // namespace orrery::models
