/// A small graph of operators over annotated tensors: leaves and communication operators carry
/// their annotation, all others get theirs by deduction. [Hetu v2, sections 5.1 and 5.2]
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/sharding/annotation.h"
#include "models/sharding/deduce.h"
#include "models/sharding/symbolic.h"

namespace orrery::models {

/// How often an operator runs: pipelines are made of what runs for each micro-batch. [section 5.4]
enum class Frequency {
  micro_batch,  ///< On what depends on the micro-batch.
  pass,         ///< Before each pass over a micro-batch, on parameters: the gathers of ZeRO-3.
  step,
};

/// A placeholder or a parameter: its tensor is given.
struct Leaf {};
/// CommOp: the input's tensor under another annotation.
struct CommunicationOperator {
  Annotation target;
  Frequency frequency = Frequency::micro_batch;
};

struct GraphOperator {
  std::string name;
  std::variant<Leaf, CommunicationOperator, OperatorType> type;
  std::vector<int> inputs;  ///< Indices of tensors, all lower than that of the output.
  int output = -1;
};

struct GraphTensor {
  std::string name;
  TensorType type;  ///< Given for leaves; for others written by deduce().
};

struct Graph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperator> operators;  ///< Each writes the tensor of the same index.

  /// These three append an operator and return its tensor.
  int leaf(std::string name, SymbolicShape shape, Annotation annotation);
  int communicate(std::string name, int input, Annotation target,
                  Frequency frequency = Frequency::micro_batch);
  int apply(std::string name, OperatorType type, std::vector<int> inputs);
};

/// Which operator cannot run, because of which input, and why.
struct GraphProblem {
  std::string operation;
  int input = 0;
  std::string reason;  ///< "mlp: needs a communication operator before input 1 because ...".
};

/// Annotates all tensors in order. On a problem those before it are annotated.
std::optional<GraphProblem> deduce(Graph& graph);

/// Puts numbers into the shapes and checks every annotation against them, so that no two devices
/// expect different sizes of one message. [section 5.5] Needs deduce() before. Shapes by tensor.
std::variant<std::vector<Shape>, GraphProblem> bind(const Graph& graph, const Binding& values);

}  // namespace orrery::models
