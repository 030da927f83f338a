// Blocks: a pass over n of them takes an overhead and n times the time of a block.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "models/base/median.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"

namespace orrery::calibration {
namespace {

using ir::Measurement;
using ir::MeasurementKind;
using ir::Pass;

constexpr EntryKind kBlock = {"block", "blocks", "", "time", "s"};
constexpr EntryKind kOverhead = {"overhead", "", "", "", ""};

double layers_of(const Measurement& one) { return one.layers; }

std::string block_name(const Measurement& one) {
  return fmt::format("{} {} {} {} tp {} micro-batch {} sequence {}", one.device_type,
                     ir::name_of(one.block), ir::name_of(one.pass), ir::name_of(one.dtype),
                     one.tensor_parallel, one.micro_batch_size, one.sequence_length);
}

/// All blocks of one device type and pass: they share the overhead.
struct PassFit {
  std::vector<std::pair<std::string, SampleSet*>> blocks;
  double overhead = 0;  ///< Seconds.
  std::map<std::string, double> block_time;
  double seen_overhead = 0;  ///< Without what is held out.
  std::map<std::string, double> seen_time;
};

/// A line for each block, all with one intercept; a column for each block and one for the overhead.
/// Blocks that were timed alone say nothing about the overhead, and where all were, it is zero.
void solve_pass(PassFit& pass, bool only_seen) {
  Design design;
  const std::size_t columns = pass.blocks.size() + 1;
  bool separable = false;
  for (std::size_t b = 0; b < pass.blocks.size(); ++b) {
    std::set<int> layers;
    for (const Sample& sample : pass.blocks[b].second->samples) {
      if (only_seen && sample.held_out) continue;
      layers.insert(sample.what.layers);
    }
    separable = separable || layers.size() > 1;
  }
  for (std::size_t b = 0; b < pass.blocks.size(); ++b) {
    for (const Sample& sample : pass.blocks[b].second->samples) {
      if (only_seen && sample.held_out) continue;
      std::vector<double> row(columns, 0.0);
      row[b] = sample.what.layers;
      row.back() = separable ? 1 : 0;
      design.add(std::move(row), sample.value);
    }
  }
  const std::vector<double> found = fit_relative(design);
  (only_seen ? pass.seen_overhead : pass.overhead) = found.back();
  for (std::size_t b = 0; b < pass.blocks.size(); ++b) {
    (only_seen ? pass.seen_time : pass.block_time)[pass.blocks[b].first] = found[b];
  }
}

/// What the engine adds to an op.
struct OpOverhead {
  double seconds = 0;
  FitEntry entry;  ///< Its samples and errors.
};

/// Median of what the engine adds to an op, by device type.
std::map<std::string, OpOverhead> op_overheads(const FitContext& context) {
  const Axis axis = [](const Measurement&) { return 0.0; };
  std::map<std::string, OpOverhead> overheads;
  fit_entries(
      context, {"overhead", "", "", "time", "s", 1},
      [](const Measurement& one) {
        return one.kind == MeasurementKind::op_overhead ? one.device_type + " op overhead"
                                                        : std::string();
      },
      axis,
      [&](FitEntry& entry, SampleSet& set) {
        std::vector<double> values;
        for (const Sample& sample : set.samples) values.push_back(sample.value);
        const double middle = median(values);
        const auto constant = [&](const Sample&) { return middle; };
        judge(set, axis, constant, constant, entry);
        entry.parameters.push_back({"each op", middle, "s"});
        overheads[set.samples.front().what.device_type] = {middle, entry};
        return true;
      });
  return overheads;
}

/// The pass's entry in the report: all its blocks in one figure. Blocks that were timed alone say
/// nothing about the overhead, and their fit is their median: they are in no error.
FitEntry pass_entry(const std::string& device, Pass pass, const PassFit& fit) {
  FitEntry entry = make_entry(fmt::format("{} {} overhead", device, ir::name_of(pass)), kOverhead);
  SampleSet together;
  for (const auto& [name, set] : fit.blocks) {
    together.used += set->used;
    together.disturbed += set->disturbed;
    if (has_one_x(*set, layers_of)) continue;
    together.samples.insert(together.samples.end(), set->samples.begin(), set->samples.end());
  }
  judge(
      together, layers_of,
      [&](const Sample& sample) {
        return fit.overhead + sample.what.layers * fit.block_time.at(block_name(sample.what));
      },
      [&](const Sample& sample) {
        return fit.seen_overhead + sample.what.layers * fit.seen_time.at(block_name(sample.what));
      },
      entry);
  entry.points.clear();  // the blocks' own figures have them
  return entry;
}

void report_block(const std::string& name, const SampleSet& set, const PassFit& fit,
                  const FitContext& context) {
  FitEntry entry = make_entry(name, kBlock);
  const double time = fit.block_time.at(name);
  const double seen = fit.seen_time.at(name);
  const auto final_fit = [&](const Sample& sample) {
    return fit.overhead + time * sample.what.layers;
  };
  const auto training_fit = [&](const Sample& sample) {
    return fit.seen_overhead + seen * sample.what.layers;
  };
  judge(set, layers_of, final_fit, training_fit, entry);
  entry.parameters = {{"each block", time, "s"}, {"overhead of the pass", fit.overhead, "s"}};
  const Measurement& what = set.samples.front().what;
  context.report.profile.block_times.push_back(
      {what.device_type, what.block, context.measured.model, what.pass, what.tensor_parallel,
       what.micro_batch_size, what.sequence_length, what.dtype, Seconds{time},
       provenance(context.measured, entry)});
  if (time <= 0) {
    context.report.warnings.push_back(name + ": no time besides the overhead of the pass");
  }
  // Embedding and head are timed alone: there is nothing else that they could be.
  const bool layer = what.block == ir::BlockKind::transformer || what.block == ir::BlockKind::moe;
  report_entry(std::move(entry), set, layer ? kBlock.enough : 1, context);
}

/// A backward pass with full recomputation against the backward and forward fits: what the cost
/// model adds.
void check_recomputation(const FitContext& context,
                         const std::map<std::pair<std::string, Pass>, PassFit>& passes) {
  auto sets = group_samples(
      context.measured,
      [](const Measurement& one) {
        const bool mine = one.kind == MeasurementKind::block && one.pass == Pass::backward &&
                          one.recompute == ir::Recompute::full;
        return mine ? block_name(one) + ", full recomputation" : std::string();
      },
      layers_of);
  for (auto& [name, set] : sets) {
    if (set.samples.empty()) continue;
    const Measurement what = set.samples.front().what;
    const auto time_of = [&](Pass pass) -> std::optional<std::pair<double, double>> {
      const auto found = passes.find({what.device_type, pass});
      if (found == passes.end()) return std::nullopt;
      Measurement plain = what;
      plain.pass = pass;
      const auto time = found->second.block_time.find(block_name(plain));
      if (time == found->second.block_time.end()) return std::nullopt;
      return std::pair{found->second.overhead, time->second};
    };
    const auto backward = time_of(Pass::backward);
    const auto forward = time_of(Pass::forward);
    if (!backward || !forward) continue;
    FitEntry entry = make_entry(name, {"check", "blocks", "", "time", "s"});
    for (Sample& sample : set.samples) sample.held_out = true;  // none is fitted
    const auto predicted = [&](const Sample& sample) {
      return backward->first + sample.what.layers * (backward->second + forward->second);
    };
    judge(set, layers_of, predicted, predicted, entry);
    entry.fit_mean_error = entry.fit_max_error = -1;
    report_entry(std::move(entry), set, 1, context);
  }
}

/// PassOverhead of every pass that can be said: the intercept and what the engine adds. The halves
/// of a backward pass that were not timed have half of its intercept each.
void add_overheads(const FitContext& context,
                   const std::map<std::pair<std::string, Pass>, PassFit>& passes,
                   const std::map<std::string, OpOverhead>& ops) {
  std::set<std::string> devices;
  for (const auto& [key, fit] : passes) devices.insert(key.first);
  for (const auto& [device, time] : ops) devices.insert(device);
  for (const std::string& device : devices) {
    const auto engine = ops.find(device);
    const double op = engine == ops.end() ? 0 : engine->second.seconds;
    for (const ir::OpTraits& kind : ir::kOpTraits) {
      if (!kind.priced_as) continue;
      const Pass pass = *kind.priced_as;
      auto found = passes.find({device, pass});
      double share = 1;
      if (found == passes.end() && kind.is_half()) {
        found = passes.find({device, Pass::backward});
        share = 0.5;
      }
      FitEntry entry;
      double intercept = 0;
      if (found != passes.end()) {
        entry = pass_entry(device, found->first.second, found->second);
        intercept = share * found->second.overhead;
      }
      if (found == passes.end() && engine == ops.end()) continue;
      // Without an intercept that was fitted the engine's part is all there is.
      const bool only_engine = entry.held_out_mean_error < 0 && engine != ops.end();
      ir::Provenance from =
          provenance(context.measured, only_engine ? engine->second.entry : entry);
      if (share < 1) from.source += ", half of the backward pass";
      context.report.profile.pass_overheads.push_back(
          {device, pass, Seconds{intercept + op}, from});
      if (found == passes.end() || share < 1) continue;
      entry.parameters = {{"intercept", intercept, "s"}, {"engine", op, "s"}};
      SampleSet counts;
      counts.used = entry.samples;
      counts.disturbed = entry.disturbed;
      counts.samples.resize(1);
      report_entry(std::move(entry), counts, 1, context);
    }
  }
}

}  // namespace

void fit_blocks(const FitContext& context) {
  auto sets = group_samples(
      context.measured,
      [](const Measurement& one) {
        const bool mine =
            one.kind == MeasurementKind::block && one.recompute == ir::Recompute::none;
        return mine ? block_name(one) : std::string();
      },
      layers_of);
  std::map<std::pair<std::string, Pass>, PassFit> passes;
  for (auto& [name, set] : sets) {
    if (set.samples.empty()) {
      report_entry(make_entry(name, {"block", "", "", "", ""}), set, 1, context);
      continue;
    }
    hold_out(set, name, layers_of, 2, context.options);
    const Measurement& what = set.samples.front().what;
    passes[{what.device_type, what.pass}].blocks.emplace_back(name, &set);
  }
  for (auto& [key, pass] : passes) {
    solve_pass(pass, false);
    solve_pass(pass, true);
    for (const auto& [name, set] : pass.blocks) {
      report_block(name, *set, pass, context);
    }
  }
  const std::map<std::string, OpOverhead> ops = op_overheads(context);
  add_overheads(context, passes, ops);
  check_recomputation(context, passes);
}

}  // namespace orrery::calibration
