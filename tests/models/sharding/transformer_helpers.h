/// Builds, specializes and describes annotated transformers for their tests.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/sharding/pipelines.h"
#include "models/sharding/specialize.h"
#include "models/sharding/transformer.h"
#include "tests/models/sharding/hetu_plans.h"

namespace orrery::models::testing {

using Kind = CommunicationKind;

inline std::string text(const std::vector<DevicePipeline>& pipelines) {
  std::string result;
  for (const auto& pipeline : pipelines) {
    for (const auto& stage : pipeline.stages) {
      result.append("[");
      for (const int device : stage) result.append(fmt::format(" {}", device));
      result.append(" ]");
    }
    result.append("\n");
  }
  return result;
}

inline Graph graph_of(const ir::ModelShape& model, const ir::Plan& plan) {
  auto result = transformer_graph(model, plan);
  if (const auto* problem = std::get_if<GraphProblem>(&result)) {
    ADD_FAILURE() << problem->reason;
    return {};
  }
  return std::get<Graph>(std::move(result));
}

inline SpecializedGraph specialized(const Graph& graph, const ir::Plan& plan) {
  auto result = specialize(graph, binding_of(plan, kToySequence));
  if (const auto* problem = std::get_if<GraphProblem>(&result)) {
    ADD_FAILURE() << problem->reason;
    return {};
  }
  return std::get<SpecializedGraph>(std::move(result));
}

inline std::string built(const ir::ModelShape& model, const ir::Plan& plan) {
  const auto result = build_pipelines(specialized(graph_of(model, plan), plan));
  if (const auto* problem = std::get_if<NoPipelines>(&result)) return problem->reason;
  return text(std::get<std::vector<DevicePipeline>>(result));
}

/// Kinds that the operators whose names end so resolve to.
inline std::set<Kind> kinds_of(const Graph& graph, const SpecializedGraph& special,
                               const std::string& ending) {
  std::set<Kind> kinds;
  for (const auto& communication : special.communications) {
    const auto& name = graph.operators[communication.operation].name;
    if (name.size() < ending.size() || name.substr(name.size() - ending.size()) != ending) continue;
    for (const auto& step : communication.steps) {
      if (!step.moves.empty()) kinds.insert(step.kind);
    }
  }
  return kinds;
}

}  // namespace orrery::models::testing
