/// From one plan to another while training: what moves, how long it takes, what is lost. What
/// `orrery switch` does.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/inputs.h"
#include "models/reshard/reshard_plan.h"

namespace orrery::experiments {

/// Which states move.
enum class MovedState { weights, all };
std::vector<std::pair<MovedState, const char*>> enum_names(MovedState);

/// A change from one plan to another, which a file has or a planner makes for the devices that are
/// left.
struct SwitchSettings {
  JobSettings job;
  std::string from;
  Text to;
  std::vector<config::Located<std::string>> lost;  ///< Nodes and devices: h100-0,24-31,40
  Text planner;  ///< In place of `to`; those that can keep near to a plan keep near to `from`.
  std::map<std::string, std::string> options;  ///< Of the planner.
  Text output;                                 ///< Where to write the planner's plan.
  CacheSetting cache;
  MovedState state = MovedState::weights;
  models::ReshardVariant variant = models::ReshardOptions{}.variant;
};

void describe(config::Visitor& v, SwitchSettings& settings);
/// Those that it reads.
std::vector<std::string> input_files(const SwitchSettings& settings);

struct SwitchedDevice {
  models::DeviceTraffic traffic;
  std::string node;
};
void describe(config::Visitor& v, SwitchedDevice& device);

/// A slice of a parameter that no live device has, in equal consecutive blocks.
struct LostSlice {
  int first_block = 0;
  int last_block = 0;
  std::string parameter;
  std::string states;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length = 0;  ///< Of what is split; 1: not split.
  Bytes bytes;              ///< Over all blocks.
  std::string held_by;      ///< Devices: "24-31".
  std::string needed_by;
};
void describe(config::Visitor& v, LostSlice& slice);

struct SwitchResult {
  std::string cluster;
  std::string model;
  std::string from;
  std::string to;                 ///< File or planner.
  std::optional<RunReport> made;  ///< What the planner made; without a plan nothing moves.
  std::vector<DeviceId> lost_devices;
  MovedState state = MovedState::weights;
  double bytes_per_parameter = 0;
  models::ReshardVariant variant = models::ReshardVariant::fused;
  Seconds simulated;  ///< Of all transfers in contention; copies inside devices take none.
  models::ClassVolumes moved;
  std::int64_t messages = 0;
  Bytes kept;
  Bytes lost_bytes;  ///< Each lost slice once.
  std::vector<SwitchedDevice> devices;
  std::vector<LostSlice> lost;
  LoadedRun inputs;  ///< Of the new plan; not described.
};
void describe(config::Visitor& v, SwitchResult& result);
/// 1: some state lives on lost devices only, or the planner found no plan.
int exit_status(const SwitchResult& result);

/// `problems`: those found in the settings so far.
SwitchResult switch_plans(const SwitchSettings& settings, const Call& call,
                          config::Diagnostics problems = {});

}  // namespace orrery::experiments
