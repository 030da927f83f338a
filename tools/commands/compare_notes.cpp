#include "tools/commands/compare_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "models/cost/device_share.h"
#include "models/ir/names.h"
#include "models/ir/wire.h"
#include "models/spec/link_calibration.h"
#include "tools/commands/execute_program.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {
namespace {

using Entries = std::vector<const ir::BlockTime*>;

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}{}", text.empty() ? "" : ", ", word);
  return text;
}

/// Ranks talked over loopback, and the cluster has links of other classes than that.
bool lacked_links(const LoadedInputs& inputs) {
  if (inputs.inputs.network != kLoopback || inputs.inputs.transport == "nccl") return false;
  if (!inputs.run.plan || ir::devices_of(*inputs.run.plan).size() < 2) return false;
  const std::set<std::string> classes = models::link_classes(inputs.run.cluster);
  return std::any_of(classes.begin(), classes.end(),
                     [](const std::string& name) { return name != kLoopback; });
}

/// What the price of a pass depends on, apart from its blocks.
struct Priced {
  int gpu_type = 0;
  std::int32_t tensor_parallel = 1;
  std::int32_t sequence_degree = 1;
  std::int32_t samples = 1;
  auto operator<=>(const Priced&) const = default;
};

std::set<Priced> passes_of(const models::Cluster& cluster, const ir::Program& program) {
  std::set<Priced> out;
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::forward || op.segment == ir::kNone) continue;
    const ir::SegmentInfo& segment = program.segment_of(op);
    const int type = cluster.device(program.rank_of(op).device).gpu_type;
    out.insert({type, segment.tensor_parallel, segment.sequence_degree, op.samples});
  }
  return out;
}

/// Keeps the entries that fit; if none does, says what is missing and what there is.
bool keep(Entries& entries, const std::function<bool(const ir::BlockTime&)>& fits,
          const std::string& wanted, const std::function<std::string(const ir::BlockTime&)>& name,
          std::string& gap) {
  std::set<std::string> there;
  Entries kept;
  for (const ir::BlockTime* entry : entries) {
    there.insert(name(*entry));
    if (fits(*entry)) kept.push_back(entry);
  }
  entries = std::move(kept);
  if (!entries.empty()) return true;
  gap = fmt::format("no block time for {}, only for {}", wanted, joined(there));
  return false;
}

/// "" if the profile has block times for such a pass.
std::string gap_of(const experiments::LoadedRun& run, const Priced& pass) {
  const models::GpuType& type = run.cluster.gpu_types[static_cast<std::size_t>(pass.gpu_type)];
  const ir::Dtype dtype =
      models::supported_dtype(type, run.workload.dtype).value_or(run.workload.dtype);
  const std::string& model = run.workload.shape.name;
  const std::int64_t length = run.workload.sequence_length;
  Entries entries;
  for (const ir::BlockTime& entry : run.profile.block_times) entries.push_back(&entry);
  std::string gap;
  const auto only = [&](auto fits, const std::string& wanted, auto name) {
    return keep(entries, fits, wanted, name, gap);
  };
  const bool found =
      only([&](const auto& e) { return e.gpu == type.name; }, fmt::format("GPU type {}", type.name),
           [](const auto& e) { return e.gpu; }) &&
      only([&](const auto& e) { return e.model.empty() || e.model == model; },
           fmt::format("blocks of {}", model), [](const auto& e) { return e.model; }) &&
      only([&](const auto& e) { return e.dtype == dtype; }, ir::name_of(dtype),
           [](const auto& e) { return std::string(ir::name_of(e.dtype)); }) &&
      only([&](const auto& e) { return e.sequence_length == length; },
           fmt::format("sequence {}", length),
           [](const auto& e) { return std::to_string(e.sequence_length); }) &&
      only([&](const auto&) { return pass.sequence_degree == 1; },
           fmt::format("sequence degree {}", pass.sequence_degree),
           [](const auto&) { return std::string("1"); }) &&
      only([&](const auto& e) { return e.tensor_parallel == pass.tensor_parallel; },
           fmt::format("tensor parallelism {}", pass.tensor_parallel),
           [](const auto& e) { return std::to_string(e.tensor_parallel); });
  if (!found) return fmt::format("{}: {}", type.name, gap);
  const auto [least, most] = std::minmax_element(
      entries.begin(), entries.end(),
      [](const auto* a, const auto* b) { return a->micro_batch_size < b->micro_batch_size; });
  const int low = (*least)->micro_batch_size;
  const int high = (*most)->micro_batch_size;
  if (low <= pass.samples && pass.samples <= high) return "";
  return fmt::format("{}: no block time for {} samples, only for {} to {}", type.name, pass.samples,
                     low, high);
}

}  // namespace

std::vector<std::string> notes_of_run(const LoadedInputs& inputs) {
  std::vector<std::string> out;
  if (lacked_links(inputs)) {
    out.push_back(fmt::format(
        "The ranks talked over loopback: links of '{}' were not there, and predicted transfers are "
        "those of its link classes.",
        inputs.run.cluster.name));
  }
  if (!inputs.inputs.shares.empty()) {
    std::string shares;
    for (const auto& [device, percent] : inputs.inputs.shares) {
      shares += fmt::format("{}device {}: {} %", shares.empty() ? "" : ", ", device, percent);
    }
    out.push_back(fmt::format(
        "The ranks were parts of one GPU ({}), which share its memory bandwidth and caches: what a "
        "profile says about a part was measured on it alone.",
        shares));
  }
  if (!inputs.changed.empty()) {
    std::string names;
    for (const std::string& name : inputs.changed) {
      names += fmt::format("{}inputs/{}", names.empty() ? "" : ", ", name);
    }
    out.push_back(fmt::format(
        "Changed since the run: {}. Prices come from the changed files, not from what the run was "
        "given.",
        names));
  }
  return out;
}

std::string changed_program(const LoadedInputs& inputs, const std::optional<ir::Plan>& plan,
                            std::int64_t generation, const ir::Program& program) {
  if (!plan) return "";
  const ExecutableProgram lowered =
      lower_for_ranks(inputs.run, *plan, static_cast<std::uint64_t>(inputs.inputs.seed));
  if (lowered.problems.empty() && ir::program_hash(lowered.program) == ir::program_hash(program)) {
    return "";
  }
  return fmt::format(
      "inputs/{} and the files beside it do not give the program that ran: one of them was changed "
      "since, or another version of orrery ran it. What is compared is the program that ran, at "
      "prices of the files that lie there.",
      generation == 0 ? std::string("plan.yaml") : fmt::format("plan-{}.yaml", generation));
}

std::vector<std::string> profile_gaps(const experiments::LoadedRun& run,
                                      const ir::Program& program) {
  if (run.profile.block_times.empty()) return {};
  std::set<std::string> gaps;
  for (const Priced& pass : passes_of(run.cluster, program)) {
    const std::string gap = gap_of(run, pass);
    if (!gap.empty()) gaps.insert(fmt::format("profile: {}: roofline", gap));
  }
  return {gaps.begin(), gaps.end()};
}

}  // namespace orrery::tools
