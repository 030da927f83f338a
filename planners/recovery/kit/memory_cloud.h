/// The frame of policies that keep replicas of the checkpoint in host memory and, beside them, a
/// checkpoint in the cloud (gemini, hot_spare, unicron). Private to planners/recovery.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "planners/recovery/kit/checkpointed.h"
#include "planners/recovery/kit/in_memory.h"

namespace orrery::planners {

struct MemoryCloudSettings {
  InMemoryOptions memory;  ///< replicas 0: none in host memory.
  std::string cloud_interval;
};

/// What the policy's options say of both kinds of checkpoints, and the rules of checkpointed.h.
struct MemoryCloudOptions {
  MemoryCloudSettings settings;
  CheckpointedRules rules;
};

/// Option cloud_interval of policies whose checkpoints are Gemini's.
inline const OptionInfo kGeminiCloudInterval = {
    "cloud_interval", "10800",
    "Between checkpoints to the cloud: never, young, daly, availability, tuned, or seconds; 3 h, "
    "as for BLOOM [Gemini, 7.1, unverified]. Without object storage there are none."};

/// Reads option `replicas` (its name) from `least` on, cloud_interval, and read_checkpointed().
std::variant<MemoryCloudOptions, PlannerEntry::BadOption> read_memory_cloud(
    OptionReader& reader, const std::vector<OptionInfo>& infos, const char* replicas,
    std::int64_t least);

class MemoryCloudPolicy : public CheckpointedPolicy {
 public:
  /// One level for each replica in host memory, then the cloud's.
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const final;

 protected:
  MemoryCloudPolicy(const PolicyInput& input, CheckpointedRules rules,
                    MemoryCloudSettings settings);

 private:
  MemoryCloudSettings settings_;
};

}  // namespace orrery::planners
