#include "models/sharding/pipelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace orrery::models {
namespace {

/// Pipelines under construction: devices with their stage, which counts from any number.
class PipelineBuilder {
 public:
  explicit PipelineBuilder(const SpecializedGraph& graph) {
    for (const auto& [device, operators] : graph.devices) {
      pipeline_of_[device] = static_cast<int>(pipelines_.size());
      pipelines_.push_back({{device, 0}});
    }
  }

  /// Puts b `distance` stages after a. False if they are in one pipeline at another distance.
  bool join(int a, int b, int distance) {
    const int into = pipeline_of_.at(a);
    const int from = pipeline_of_.at(b);
    auto& target = pipelines_[into];
    auto& source = pipelines_[from];
    const int shift = target.at(a) + distance - source.at(b);
    if (into == from) return shift == 0;
    for (const auto& [device, stage] : source) {
      target[device] = stage + shift;
      pipeline_of_[device] = into;
    }
    source.clear();
    return true;
  }

  std::vector<DevicePipeline> result() const {
    std::map<int, DevicePipeline> by_first_device;
    for (const auto& pipeline : pipelines_) {
      std::map<int, std::vector<int>> stages;
      for (const auto& [device, stage] : pipeline) stages[stage].push_back(device);
      if (stages.empty()) continue;
      DevicePipeline& finished = by_first_device[pipeline.begin()->first];
      for (auto& [stage, devices] : stages) finished.stages.push_back(std::move(devices));
    }
    std::vector<DevicePipeline> all;
    for (auto& [device, pipeline] : by_first_device) all.push_back(std::move(pipeline));
    return all;
  }

 private:
  std::map<int, int> pipeline_of_;
  std::vector<std::map<int, int>> pipelines_;  ///< Stage by device.
};

bool together(const Annotation& annotation, int a, int b) {
  return std::any_of(annotation.subgroups.begin(), annotation.subgroups.end(),
                     [&](const Subgroup& subgroup) {
                       const auto& devices = subgroup.devices;
                       return std::find(devices.begin(), devices.end(), a) != devices.end() &&
                              std::find(devices.begin(), devices.end(), b) != devices.end();
                     });
}

}  // namespace

std::variant<std::vector<DevicePipeline>, NoPipelines> build_pipelines(
    const SpecializedGraph& graph) {
  PipelineBuilder builder(graph);
  for (const ResolvedCommunication& communication : graph.communications) {
    if (communication.frequency != Frequency::micro_batch) continue;
    // Collectives first: a device that one step moves to may act in another one of this CommOp.
    for (const bool collectives : {true, false}) {
      for (const CommunicationStep& step : communication.steps) {
        if (is_collective(step.kind) != collectives) continue;
        for (const auto& devices : groups(step)) {
          for (std::size_t i = 1; i < devices.size(); ++i) {
            const bool stay =
                collectives || (together(communication.from, devices[0], devices[i]) &&
                                together(communication.to, devices[0], devices[i]));
            const bool fits = builder.join(devices[0], devices[i], stay ? 0 : 1);
            if (fits || !collectives) continue;
            return NoPipelines{
                fmt::format("devices {} and {} meet in a collective, and stand in "
                            "different stages of one pipeline",
                            devices[0], devices[i])};
          }
        }
      }
    }
  }
  return builder.result();
}

}  // namespace orrery::models
