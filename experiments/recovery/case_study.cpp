#include "experiments/recovery/case_study.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <variant>

#include "planners/recovery/kit/transfer_estimate.h"
#include "sim/flow/fork.h"

namespace orrery::experiments {

int run_on_folder(int count, char** values, const std::function<void(const std::string&)>& run) {
  constexpr int kBadInput = 2;
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", values[0]);
    return kBadInput;
  }
  try {
    run(values[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kBadInput;
  }
  return 0;
}

std::string in_folder(const std::string& folder, const std::string& name) {
  const auto path = std::filesystem::path(folder) / name;
  return std::filesystem::exists(path) ? path.string() : name;
}

std::string forked_text(const std::function<std::string()>& work) {
  sim::ForkResult result = sim::run_forked(work);
  if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
    throw std::runtime_error(failure->message);
  }
  return std::get<std::string>(std::move(result));
}

RecoveryCase::RecoveryCase(const models::Cluster& cluster, const models::Workload& workload,
                           const models::Job& job)
    : cluster_(cluster),
      topology_(cluster),
      timers_(cluster, topology_, workload, job, profile_),
      input_{cluster, topology_, workload, job, profile_, timers_.evaluator(), 0, std::nullopt, 0} {
}

std::vector<DeviceId> RecoveryCase::all_devices() const {
  std::vector<DeviceId> all;
  for (const models::Device& device : cluster_.devices) all.push_back(device.id);
  return all;
}

models::JobState RecoveryCase::state_after(const models::PlanPointer& plan,
                                           const std::vector<DeviceId>& live, bool nvme) const {
  models::JobState state;
  state.iteration = 1;
  state.plan = plan;
  state.live = live;
  std::vector<bool> has_live(cluster_.nodes.size(), false);
  for (const DeviceId device : live) has_live[cluster_.device(device).node.index()] = true;
  models::StateReplica gpus{1, ir::Location::peer, plan, {}, {}};
  models::StateReplica disks{1, ir::Location::nvme, plan, {}, {}};
  const std::vector<DeviceId> devices = ir::devices_of(*plan);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto share = static_cast<std::uint32_t>(i);
    if (!std::binary_search(live.begin(), live.end(), devices[i]))
      gpus.lost_shards.push_back(share);
    if (!has_live[cluster_.device(devices[i]).node.index()]) disks.lost_shards.push_back(share);
  }
  state.replicas.push_back(std::move(gpus));
  if (nvme) state.replicas.push_back(std::move(disks));
  state.replicas.push_back({1, ir::Location::cloud, plan, {}, {}});
  return state;
}

RecoveryCase::Move RecoveryCase::move(const std::vector<models::StateTransfer>& transfers) const {
  Move result{to_seconds(timers_.transfers().time(transfers)),
              planners::transfer_estimate(input_, transfers),
              {}};
  for (const models::StateTransfer& transfer : transfers) result.bytes += transfer.bytes;
  return result;
}

}  // namespace orrery::experiments
