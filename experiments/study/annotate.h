/// A plan as an annotated graph: where its tensors lie, what its communication operators resolve
/// to, and the pipelines that follow from them. What `orrery annotate` does.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/inputs.h"

namespace orrery::experiments {

struct AnnotateSettings {
  JobSettings job;
  std::string plan;
};
void describe(config::Visitor& v, AnnotateSettings& settings);

/// Layers whose tensor of this name lies equally.
struct PlacedTensor {
  std::string layers;  ///< "1-60"; "" outside of the layers.
  std::string tensor;
  bool leaf = false;
  std::vector<std::int64_t> shape;  ///< Samples of all pipelines in one step.
  std::string annotation;
};

/// Steps of one kind in one phase.
struct AnnotatedStep {
  int phase = 0;
  std::string kind;
  std::string tier;
  std::vector<std::string> groups;  ///< "0-3"; of sends "0 -> 4".
  std::int64_t elements = 0;        ///< Of the slices, for each layer.
};

struct PlacedCommunication {
  std::string layers;
  std::string operation;
  std::string frequency;
  std::string from;
  std::string to;
  std::vector<AnnotatedStep> steps;
};

/// Devices of each stage: "0-3".
struct PlacedPipeline {
  std::vector<std::string> stages;
};

struct AnnotateResult {
  std::string cluster;
  std::string model;
  std::string plan;
  std::int64_t samples = 0;
  std::int64_t sequence_length = 0;
  std::vector<PlacedTensor> tensors;
  std::vector<PlacedCommunication> communications;
  std::vector<PlacedPipeline> pipelines;
  std::string no_pipelines;  ///< Why there are none.
  LoadedRun inputs;          ///< Not described.
};
void describe(config::Visitor& v, AnnotateResult& result);

/// Throws NoGraph for a plan that has no annotated graph.
AnnotateResult annotate(const AnnotateSettings& settings, const Call& call);

/// A plan that annotations cannot say; what() is the reason.
struct NoGraph : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace orrery::experiments
