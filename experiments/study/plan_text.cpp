#include "experiments/study/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::experiments {

std::string by_segment(const ir::Stage& stage,
                       const std::function<std::string(const ir::Segment&)>& value) {
  std::string text, last;
  for (const ir::Segment& segment : stage.segments) {
    const std::string now = value(segment);
    if (text.empty()) {
      text = now;
    } else if (now != last) {
      text += fmt::format(", {}", now);
    }
    last = now;
  }
  return text;
}

std::string by_group(const ir::Segment& segment,
                     const std::function<std::string(const ir::Group&)>& value) {
  std::vector<std::string> values;
  for (const ir::Group& group : segment.groups) values.push_back(value(group));
  const bool equal = std::all_of(values.begin(), values.end(),
                                 [&](const std::string& v) { return v == values.front(); });
  if (equal) return values.empty() ? "" : values.front();
  return fmt::format("{}", fmt::join(values, "+"));
}

std::string composition(const std::vector<DeviceId>& devices, const models::Cluster& cluster) {
  std::map<int, int> counts;
  for (const DeviceId device : devices) ++counts[cluster.device(device).gpu_type];
  std::vector<std::string> parts;
  for (const auto& [type, count] : counts) {
    parts.push_back(fmt::format("{} x {}", count, cluster.gpu_types[type].name));
  }
  return fmt::format("{}", fmt::join(parts, " + "));
}

std::string id_ranges(std::vector<DeviceId> devices) {
  std::sort(devices.begin(), devices.end());
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < devices.size();) {
    std::size_t end = begin + 1;
    while (end < devices.size() && devices[end].value == devices[end - 1].value + 1) ++end;
    const int first = devices[begin].value;
    const int last = devices[end - 1].value;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
    begin = end;
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string block_ranges(const ir::Stage& stage) {
  return by_segment(stage, [](const ir::Segment& segment) {
    return fmt::format("{}-{}", segment.first_block.value, segment.last_block.value);
  });
}

std::string tensor_parallel(const ir::Stage& stage) {
  return by_segment(stage, [](const ir::Segment& segment) {
    return by_group(segment,
                    [](const ir::Group& group) { return std::to_string(group.tensor_parallel); });
  });
}

std::string expert_parallel(const ir::Segment& segment) {
  const std::string experts =
      by_group(segment, [](const ir::Group& group) { return std::to_string(group.experts); });
  return experts == "0" ? std::to_string(segment.expert_parallel)
                        : fmt::format("{} ({})", segment.expert_parallel, experts);
}

}  // namespace orrery::experiments
