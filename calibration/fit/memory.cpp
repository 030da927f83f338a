// Bytes that blocks keep between forward and backward, against what the model of memory counts.
#include "models/cost/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "models/ir/names.h"

namespace orrery::calibration {
using ir::Measurement;
using ir::MeasurementKind;

MemoryCount count_kept(const models::Workload& workload, const models::Job& job) {
  return [workload, job](const Measurement& one) -> std::optional<Bytes> {
    int first = -1;
    for (int b = 0; b < workload.size() && first < 0; ++b) {
      if (workload.block(BlockId{b}).kind == one.block) first = b;
    }
    if (first < 0 || one.layers < 1 || one.sequence_length != workload.sequence_length ||
        one.dtype != workload.dtype) {
      return std::nullopt;
    }
    ir::Segment segment;
    segment.first_block = BlockId{first};
    segment.last_block = BlockId{first};
    segment.recompute = one.recompute;
    ir::Group group;
    for (int i = 0; i < one.tensor_parallel; ++i) group.devices.push_back(DeviceId{i});
    group.tensor_parallel = one.tensor_parallel;
    group.samples = one.micro_batch_size;
    const models::SegmentMemory memory = models::segment_memory(segment, group, 1, workload, job);
    return one.layers * (memory.activations_per_micro_batch + memory.logits);
  };
}

void fit_memory(const FitContext& context) {
  const Axis counted = [&](const Measurement& one) {
    const MemoryCount& count = context.options.counted_memory;
    const std::optional<Bytes> bytes = count ? count(one) : std::nullopt;
    return bytes && bytes->value > 0 ? bytes->value : 0.0;
  };
  fit_entries(
      context, {"memory", "counted", "B", "kept", "B"},
      [](const Measurement& one) {
        return one.kind == MeasurementKind::memory ? one.device_type + " kept bytes"
                                                   : std::string();
      },
      counted,
      [&](FitEntry& entry, SampleSet& set) {
        FitReport& report = context.report;
        const std::string device = set.samples.front().what.device_type;
        const auto unknown = std::erase_if(
            set.samples, [&](const Sample& sample) { return counted(sample.what) <= 0; });
        if (unknown > 0) {
          report.warnings.push_back(
              fmt::format("{}: {} measurements have no counterpart in the model of memory",
                          entry.name, unknown));
        }
        if (set.samples.empty()) return false;
        const double ratio = fit_factor(set, counted, 1, counted, context, entry);
        entry.parameters.push_back({"kept over counted", ratio, ""});
        if (ratio < 1) {
          report.warnings.push_back(fmt::format(
              "{}: the device keeps {:.3f} of what the model counts; the profile says 1",
              entry.name, ratio));
        }
        // Only a GPU has a context, and none of these measurements sees it.
        const bool cpu = context.measured.backend == "cpu";
        const Bytes gpu_context = cpu ? Bytes{} : models::kAssumedContext;
        ir::Provenance from = provenance(context.measured, entry);
        if (gpu_context.value > 0) from.source += "; context assumed";
        report.profile.memory.push_back({device, gpu_context, std::max(ratio, 1.0), from});
        return true;
      });
}

}  // namespace orrery::calibration
