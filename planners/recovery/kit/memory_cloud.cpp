#include "planners/recovery/kit/memory_cloud.h"

#include <utility>

#include "planners/recovery/kit/answer.h"

namespace orrery::planners {

std::variant<MemoryCloudOptions, PlannerEntry::BadOption> read_memory_cloud(
    OptionReader& reader, const std::vector<OptionInfo>& infos, const char* replicas,
    std::int64_t least) {
  constexpr std::int64_t kMostReplicas = 1'000;
  MemoryCloudOptions out;
  out.settings.memory.replicas = static_cast<int>(reader.integer(replicas, least, kMostReplicas));
  out.settings.cloud_interval = reader.text("cloud_interval");
  const std::string problem = checkpoint_interval_problem(out.settings.cloud_interval);
  if (!problem.empty()) return PlannerEntry::BadOption{"cloud_interval", problem};
  auto read = read_checkpointed(reader, infos);
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  out.rules = std::get<CheckpointedRules>(std::move(read));
  return out;
}

MemoryCloudPolicy::MemoryCloudPolicy(const PolicyInput& input, CheckpointedRules rules,
                                     MemoryCloudSettings settings)
    : CheckpointedPolicy(input, std::move(rules)), settings_(std::move(settings)) {}

std::vector<models::CheckpointLevel> MemoryCloudPolicy::checkpoints(const ir::Plan& plan,
                                                                    Seconds iteration_time) const {
  std::vector<models::CheckpointLevel> levels;
  if (settings_.memory.replicas > 0) {
    levels = in_memory_levels(input(), plan, iteration_time, settings_.memory);
  }
  const auto cloud = cloud_checkpoint(input(), settings_.cloud_interval, plan,
                                      rules().phases.reinitialize.duration, iteration_time);
  levels.insert(levels.end(), cloud.begin(), cloud.end());
  return levels;
}

}  // namespace orrery::planners
