// Bytes that blocks keep between forward and backward, against what the model of memory counts.
#include "models/cost/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "models/ir/names.h"

namespace orrery::calibration {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

}  // namespace

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

void fit_memory(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report) {
  const auto counted = [&](const Measurement& one) {
    const std::optional<Bytes> count =
        options.counted_memory ? options.counted_memory(one) : std::nullopt;
    return count && count->value > 0 ? count->value : 0.0;
  };
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        return one.kind == MeasurementKind::memory ? one.device_type + " kept bytes"
                                                   : std::string();
      },
      counted);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, "memory", "counted", "B", "kept", "B");
    if (set.samples.empty()) {
      report_entry(std::move(entry), set, kEnoughSizes, options, report);
      continue;
    }
    const std::string device = set.samples.front().what.device_type;
    const auto known =
        std::stable_partition(set.samples.begin(), set.samples.end(),
                              [&](const Sample& sample) { return counted(sample.what) > 0; });
    const auto unknown = set.samples.end() - known;
    set.samples.erase(known, set.samples.end());
    if (unknown > 0) {
      report.warnings.push_back(fmt::format(
          "{}: {} measurements have no counterpart in the model of memory", name, unknown));
    }
    if (set.samples.empty()) continue;
    hold_out(set, name, counted, 1, options);
    const auto ratio_of = [&](const std::vector<const Sample*>& samples) {
      Design design;
      for (const Sample* sample : samples) design.add({counted(sample->what)}, sample->value);
      return fit_relative(design).front();
    };
    const double ratio = ratio_of(all(set));
    const double seen = ratio_of(training(set));
    judge(
        set, counted, [&](const Sample& sample) { return ratio * counted(sample.what); },
        [&](const Sample& sample) { return seen * counted(sample.what); }, entry);
    entry.parameters.push_back({"kept over counted", ratio, ""});
    if (ratio < 1) {
      report.warnings.push_back(fmt::format(
          "{}: the device keeps {:.3f} of what the model counts; the profile says 1", name, ratio));
    }
    // Only a GPU has a context, and none of these measurements sees it.
    const Bytes context = measured.backend == "cpu" ? Bytes{} : models::kAssumedContext;
    ir::Provenance from = provenance(measured, entry);
    if (context.value > 0) from.source += "; context assumed";
    report.profile.memory.push_back({device, context, std::max(ratio, 1.0), from});
    report_entry(std::move(entry), set, kEnoughSizes, options, report);
  }
}

}  // namespace orrery::calibration
