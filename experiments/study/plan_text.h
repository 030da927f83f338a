/// Parts of plans in words.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

/// Values of the stage's segments, equal neighbors once: "4, 8".
std::string by_segment(const ir::Stage& stage,
                       const std::function<std::string(const ir::Segment&)>& value);

/// Values of a segment's groups, one value if all are equal: "4+2".
std::string by_group(const ir::Segment& segment,
                     const std::function<std::string(const ir::Group&)>& value);

/// "3 x A800-80GB + 1 x V100-32GB", in the order of the cluster's types.
std::string composition(const std::vector<DeviceId>& devices, const models::Cluster& cluster);

/// "0-3,8": ascending runs of ids.
std::string id_ranges(std::vector<DeviceId> devices);

/// "0-10", "0-10, 31-41" of a stage of several segments.
std::string block_ranges(const ir::Stage& stage);

/// "2"; "2 (1+3)" of groups that hold unlike numbers of experts.
std::string expert_parallel(const ir::Segment& segment);

/// "4", "4+2" of groups of different degree; of the stage's first segment.
std::string tensor_parallel(const ir::Stage& stage);

}  // namespace orrery::experiments
