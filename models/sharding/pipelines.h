/// Pipeline construction: which devices belong to which stage of which pipeline, from the
/// communication of the annotated graph alone. A pipeline is the smallest set of devices that a
/// complete dataflow needs. [Hetu v2, section 5.4]
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/sharding/specialize.h"

namespace orrery::models {

/// Devices of each stage, ascending.
struct DevicePipeline {
  std::vector<std::vector<int>> stages;
  bool operator==(const DevicePipeline&) const = default;
};

/// Why stages cannot be numbered: names the devices.
struct NoPipelines {
  std::string reason;
};

/// Begins with a pipeline for each device and goes through the CommOps that run for each
/// micro-batch: devices of a collective come into the same stage of one pipeline, a receiver of a
/// send comes one stage after its sender, unless both are in one subgroup before and after (states
/// that change by sends inside a group): these stay in one stage. Sends between devices that are in
/// one pipeline already (the way back of interleaved stages) change nothing. Ordered by the first
/// device. NoPipelines: a collective of two different stages of one pipeline.
std::variant<std::vector<DevicePipeline>, NoPipelines> build_pipelines(
    const SpecializedGraph& graph);

}  // namespace orrery::models
