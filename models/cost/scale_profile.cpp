#include "models/cost/scale_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/ir/measurement.h"

namespace orrery::models {
namespace {

constexpr const char* kScaled = "scaled from ";

ir::Provenance scaled(ir::Provenance provenance, const GpuType& from) {
  provenance.source = fmt::format("{}{}: {}", kScaled, from.name, provenance.source);
  provenance.held_out_error.reset();
  return provenance;
}

/// Appends an entry of `to` for each of `from`; `change` returns false for those that cannot be.
/// Entries for which `same` finds one of `to` are left out.
template <class T, class Change, class Same>
void add_scaled(std::vector<T>& entries, const GpuType& from, const GpuType& to, Change change,
                Same same) {
  std::vector<T> added;
  for (const T& entry : entries) {
    if (entry.gpu != from.name) continue;
    T made = entry;
    made.gpu = to.name;
    made.provenance = scaled(entry.provenance, from);
    if (!change(made)) continue;
    const bool own = std::any_of(entries.begin(), entries.end(), [&](const T& other) {
      return other.gpu == to.name && same(other, made);
    });
    if (!own) added.push_back(std::move(made));
  }
  entries.insert(entries.end(), added.begin(), added.end());
}

bool same_block(const ir::BlockTime& a, const ir::BlockTime& b) {
  return a.block == b.block && a.model == b.model && a.pass == b.pass &&
         a.tensor_parallel == b.tensor_parallel && a.micro_batch_size == b.micro_batch_size &&
         a.sequence_length == b.sequence_length && a.dtype == b.dtype;
}

}  // namespace

ir::Profile scale_profile(const ir::Profile& profile, const GpuType& from, const GpuType& to) {
  ORRERY_CHECK(from.name != to.name, "{} scaled to itself", from.name);
  const double memory = (from.memory_bandwidth * from.memory_efficiency) /
                        (to.memory_bandwidth * to.memory_efficiency);
  ir::Profile out = profile;
  const auto change_dtype = [&](ir::Dtype& dtype) {
    const std::optional<ir::Dtype> own = supported_dtype(to, dtype);
    if (own) dtype = *own;
    return own.has_value();
  };
  add_scaled(
      out.block_times, from, to,
      [&](ir::BlockTime& entry) {
        const FlopsPerSecond before = peak_flops(from, entry.dtype) * from.efficiency;
        if (!change_dtype(entry.dtype) || before.value <= 0) return false;
        const double compute = before / (peak_flops(to, entry.dtype) * to.efficiency);
        entry.time = (entry.pass == ir::Pass::optimizer ? memory : compute) * entry.time;
        return true;
      },
      same_block);
  add_scaled(
      out.efficiencies, from, to,
      [&](ir::EfficiencyCurve& curve) {
        for (auto& point : curve.points) point.efficiency *= to.efficiency / from.efficiency;
        return change_dtype(curve.dtype);
      },
      [](const auto& a, const auto& b) { return a.dtype == b.dtype; });
  add_scaled(
      out.optimizers, from, to,
      [&](ir::OptimizerTime& entry) {
        entry.per_parameter = memory * entry.per_parameter;
        return change_dtype(entry.dtype);
      },
      [](const auto& a, const auto& b) { return a.dtype == b.dtype; });
  const auto unchanged = [](const auto&) { return true; };
  add_scaled(out.pass_overheads, from, to, unchanged,
             [](const auto& a, const auto& b) { return a.pass == b.pass; });
  add_scaled(out.overlap_losses, from, to, unchanged,
             [](const auto&, const auto&) { return true; });
  add_scaled(out.exposed_collectives, from, to, unchanged,
             [](const auto& a, const auto& b) { return a.purpose == b.purpose; });
  add_scaled(out.memory, from, to, unchanged, [](const auto&, const auto&) { return true; });
  return out;
}

std::string scaled_note(const ir::Provenance& provenance) {
  std::string note;
  if (provenance.source.starts_with(kScaled)) {
    note = fmt::format(", {}", provenance.source.substr(0, provenance.source.find(':')));
  }
  if (provenance.source.find(ir::kQuickSource) != std::string::npos) {
    note += fmt::format(", {}", ir::kQuickSource);
  }
  return note;
}

}  // namespace orrery::models
