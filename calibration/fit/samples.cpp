#include "calibration/fit/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "calibration/fit/robust.h"
#include "models/base/hash.h"
#include "models/base/median.h"
#include "models/base/rng.h"
#include "models/ir/measurement_text.h"

namespace orrery::calibration {
namespace {

double result_of(const ir::Measurement& one) {
  return one.kind == ir::MeasurementKind::memory ? one.bytes.value : one.wall.value;
}

void add_error(double error, double& mean, double& max, std::size_t count) {
  mean += error / static_cast<double>(count);
  max = std::max(max, error);
}

/// Turns in which repetitions of one measurement are held out.
constexpr std::size_t kTurns = 5;
/// A fit this near to the median is the median: rounding.
constexpr double kSame = 1e-9;

/// Each repetition against the median of those that are not held out in its turn; fewer than two
/// say nothing.
void judge_repetitions(const SampleSet& set, const Axis& axis,
                       const std::function<double(const Sample&)>& final_fit, FitEntry& entry) {
  std::vector<double> taken;
  for (const Sample& sample : set.samples) {
    taken.insert(taken.end(), sample.repetitions.begin(), sample.repetitions.end());
  }
  std::sort(taken.begin(), taken.end());
  const Sample& any = set.samples.front();
  const double fitted = final_fit(any);
  entry.repetitions = true;
  const bool alone = set.samples.size() == 1;
  const bool is_median = alone && std::abs(fitted - any.value) <= kSame * any.value;
  if (is_median) entry.fit_mean_error = entry.fit_max_error = -1;
  const std::size_t turns = std::min(kTurns, taken.size());
  if (turns >= 2) entry.held_out_mean_error = entry.held_out_max_error = 0;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    std::vector<double> others;
    for (std::size_t k = 0; k < taken.size(); ++k) {
      if (k % turns != i % turns) others.push_back(taken[k]);
    }
    double judged = others.empty() ? fitted : median(std::move(others));
    // A fit above its only measurement is a floor that others set: the overhead of a pass.
    if (alone && !is_median) judged = std::max(judged, fitted);
    entry.points.push_back({axis(any.what), taken[i], judged, fitted, turns >= 2});
    if (turns < 2) continue;
    add_error(std::abs(judged - taken[i]) / taken[i], entry.held_out_mean_error,
              entry.held_out_max_error, taken.size());
  }
}

}  // namespace

FitEntry make_entry(std::string name, const EntryKind& kind) {
  FitEntry entry;
  entry.name = std::move(name);
  entry.kind = kind.kind;
  entry.x_name = kind.x_name;
  entry.x_unit = kind.x_unit;
  entry.y_name = kind.y_name;
  entry.y_unit = kind.y_unit;
  return entry;
}

std::map<std::string, SampleSet> group_samples(
    const ir::MeasurementSet& measured,
    const std::function<std::string(const ir::Measurement&)>& name_of, const Axis& axis) {
  std::map<std::string, SampleSet> sets;
  std::map<std::string, std::pair<std::string, std::size_t>> place;  // by key: entry, sample
  std::map<std::string, std::vector<std::vector<double>>> values;
  for (const ir::Measurement& one : measured.measurements) {
    const std::string name = name_of(one);
    if (name.empty()) continue;
    SampleSet& set = sets[name];
    if (one.disturbed) {
      ++set.disturbed;
      continue;
    }
    const double result = result_of(one);
    if (!(result > 0) || !std::isfinite(result)) {
      ++set.unusable;
      continue;
    }
    const auto [found, fresh] =
        place.try_emplace(ir::measurement_key(one), name, set.samples.size());
    if (fresh) {
      set.samples.push_back({one, 0, 0, false, {}});
      values[name].emplace_back();
    }
    Sample& sample = set.samples[found->second.second];
    values[name][found->second.second].push_back(result);
    ++sample.count;
    ++set.used;
  }
  for (auto& [name, set] : sets) {
    for (std::size_t i = 0; i < set.samples.size(); ++i) {
      std::sort(values[name][i].begin(), values[name][i].end());
      set.samples[i].value = median(values[name][i]);
      set.samples[i].repetitions = std::move(values[name][i]);
    }
    std::stable_sort(set.samples.begin(), set.samples.end(),
                     [&](const Sample& a, const Sample& b) { return axis(a.what) < axis(b.what); });
  }
  return sets;
}

void hold_out(SampleSet& set, const std::string& name, const Axis& axis, std::size_t needed,
              const FitOptions& options) {
  std::set<double> distinct;
  for (const Sample& sample : set.samples) distinct.insert(axis(sample.what));
  needed = std::max<std::size_t>(needed, 2);
  if (distinct.size() <= needed) return;
  std::vector<double> inner(std::next(distinct.begin()), std::prev(distinct.end()));
  Rng rng = Rng(options.seed).fork(name_hash(name));
  for (std::size_t i = inner.size(); i > 1; --i) {
    std::swap(inner[i - 1], inner[rng.integer(0, static_cast<std::int64_t>(i) - 1)]);
  }
  const double wanted = options.held_out_share * static_cast<double>(distinct.size());
  const std::size_t count = std::min(
      {static_cast<std::size_t>(std::ceil(wanted - 1e-9)), inner.size(), distinct.size() - needed});
  const std::set<double> chosen(inner.begin(), inner.begin() + static_cast<std::ptrdiff_t>(count));
  for (Sample& sample : set.samples) sample.held_out = chosen.contains(axis(sample.what));
}

bool has_one_x(const SampleSet& set, const Axis& axis) {
  return !set.samples.empty() &&
         std::all_of(set.samples.begin(), set.samples.end(), [&](const Sample& sample) {
           return axis(sample.what) == axis(set.samples.front().what);
         });
}

void judge(const SampleSet& set, const Axis& axis,
           const std::function<double(const Sample&)>& final_fit,
           const std::function<double(const Sample&)>& training_fit, FitEntry& entry) {
  entry.samples = set.used;
  entry.disturbed = set.disturbed;
  std::size_t held_out = 0;
  for (const Sample& sample : set.samples) held_out += sample.held_out ? 1 : 0;
  if (!set.samples.empty()) entry.fit_mean_error = entry.fit_max_error = 0;
  if (held_out > 0) entry.held_out_mean_error = entry.held_out_max_error = 0;
  const bool by_repetition = held_out == 0 && has_one_x(set, axis);
  for (const Sample& sample : set.samples) {
    const double fitted = final_fit(sample);
    if (!by_repetition) {
      entry.points.push_back({axis(sample.what), sample.value,
                              sample.held_out ? training_fit(sample) : fitted, fitted,
                              sample.held_out});
    }
    add_error(std::abs(fitted - sample.value) / sample.value, entry.fit_mean_error,
              entry.fit_max_error, set.samples.size());
    if (!sample.held_out) continue;
    add_error(std::abs(training_fit(sample) - sample.value) / sample.value,
              entry.held_out_mean_error, entry.held_out_max_error, held_out);
  }
  if (by_repetition) judge_repetitions(set, axis, final_fit, entry);
}

std::vector<const Sample*> training(const SampleSet& set) {
  std::vector<const Sample*> seen;
  for (const Sample& sample : set.samples) {
    if (!sample.held_out) seen.push_back(&sample);
  }
  return seen;
}

std::vector<const Sample*> all(const SampleSet& set) {
  std::vector<const Sample*> seen;
  for (const Sample& sample : set.samples) seen.push_back(&sample);
  return seen;
}

ir::Provenance provenance(const ir::MeasurementSet& measured, const FitEntry& entry) {
  ir::Provenance from;
  from.source =
      fmt::format("measured on {}", measured.backend.empty() ? "this machine" : measured.backend);
  if (measured.sampling == ir::kQuickSampling) {
    from.source += fmt::format(" ({})", ir::kQuickSource);
  }
  from.date = measured.date;
  from.machine = measured.machine;
  from.libraries = measured.libraries;
  from.samples = entry.samples;
  if (entry.held_out_mean_error >= 0) from.held_out_error = entry.held_out_mean_error;
  if (entry.held_out_mean_error >= 0 && entry.repetitions) {
    from.source += ", repetitions held out";
  }
  return from;
}

void report_entry(FitEntry entry, const SampleSet& set, std::size_t enough,
                  const FitContext& context) {
  const auto warn = [&](const std::string& what) {
    context.report.warnings.push_back(fmt::format("{}: {}", entry.name, what));
  };
  entry.samples = set.used;
  entry.disturbed = set.disturbed;
  const std::int64_t taken = set.used + set.disturbed;
  if (set.samples.empty()) {
    warn(fmt::format("no usable sample ({} disturbed, {} without a positive result): no entry",
                     set.disturbed, set.unusable));
  } else {
    if (set.samples.size() < enough) {
      warn(fmt::format("only {} different measurement{}, {} would say more", set.samples.size(),
                       set.samples.size() == 1 ? "" : "s", enough));
    }
    if (set.unusable > 0) warn(fmt::format("{} samples without a positive result", set.unusable));
    if (2 * set.disturbed > taken) {
      warn(fmt::format("{} of {} samples were disturbed", set.disturbed, taken));
    }
  }
  const bool judged = entry.held_out_mean_error >= 0;
  const double error = judged ? entry.held_out_mean_error : entry.fit_mean_error;
  if (error > context.options.warn_error && judged && entry.repetitions) {
    warn(fmt::format("repetitions are {:.0f} % off the median of the others on average",
                     100 * error));
  } else if (error > context.options.warn_error) {
    warn(fmt::format("mean {} error {:.0f} %", judged ? "held-out" : "fit", 100 * error));
  }
  context.report.entries.push_back(std::move(entry));
}

void fit_entries(const FitContext& context, const EntryKind& kind,
                 const std::function<std::string(const ir::Measurement&)>& name_of,
                 const Axis& axis, const std::function<bool(FitEntry&, SampleSet&)>& fit_entry) {
  auto sets = group_samples(context.measured, name_of, axis);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, kind);
    if (!set.samples.empty() && !fit_entry(entry, set)) continue;
    report_entry(std::move(entry), set, kind.enough, context);
  }
}

Line fit_line(SampleSet& set, const Axis& axis, const Axis& term, const FitContext& context,
              FitEntry& entry) {
  return fit_judged(
      set, axis, 2,
      [&](const std::vector<const Sample*>& samples) {
        Design design;
        for (const Sample* sample : samples) design.add({1, term(sample->what)}, sample->value);
        const std::vector<double> found = fit_relative(design);
        return Line{found[0], found[1]};
      },
      [&](const Line& line, const Sample& sample) {
        return line.fixed + line.slope * term(sample.what);
      },
      context, entry);
}

double fit_factor(SampleSet& set, const Axis& axis, std::size_t needed, const Axis& base,
                  const FitContext& context, FitEntry& entry) {
  return fit_judged(
      set, axis, needed,
      [&](const std::vector<const Sample*>& samples) {
        Design design;
        for (const Sample* sample : samples) design.add({base(sample->what)}, sample->value);
        return fit_relative(design).front();
      },
      [&](double factor, const Sample& sample) { return factor * base(sample.what); }, context,
      entry);
}

}  // namespace orrery::calibration
