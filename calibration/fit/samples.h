/// What all fits share: repetitions of one measurement reduced to their median, the choice of what
/// is kept from a fit, and how an entry is fitted, judged and reported. Private to calibration/fit.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calibration/fit/fit.h"
#include "models/ir/measurement.h"

namespace orrery::calibration {

struct FitContext {
  const ir::MeasurementSet& measured;
  const FitOptions& options;
  FitReport& report;
};

/// What the entries of one fit have in common.
struct EntryKind {
  const char* kind;  ///< As the next four in FitEntry.
  const char* x_name;
  const char* x_unit;
  const char* y_name;
  const char* y_unit;
  std::size_t enough = 3;  ///< Different measurements below which an entry warns.
};
FitEntry make_entry(std::string name, const EntryKind& kind);

/// One measurement, all of its repetitions that count.
struct Sample {
  ir::Measurement what;    ///< Its first repetition.
  double value = 0;        ///< Median of their wall times in seconds; of memory, of their bytes.
  std::int64_t count = 0;  ///< Repetitions behind it.
  bool held_out = false;
  std::vector<double> repetitions;  ///< As `value`, ascending.
};

/// The samples of one entry.
struct SampleSet {
  std::vector<Sample> samples;  ///< In the order of their x, then of the measurements.
  std::int64_t used = 0;
  std::int64_t disturbed = 0;
  std::int64_t unusable = 0;  ///< Without a positive result.
};

/// The quantity of the x axis, which decides what is held out: a size, a number of layers.
using Axis = std::function<double(const ir::Measurement&)>;
inline double bytes_of(const ir::Measurement& one) { return one.bytes.value; }

/// Measurements by entry. `name_of`: the entry that a measurement belongs to, "" for none of this
/// fit's. Names are sorted; repetitions of equal ir::measurement_key are one sample.
std::map<std::string, SampleSet> group_samples(
    const ir::MeasurementSet& measured,
    const std::function<std::string(const ir::Measurement&)>& name_of, const Axis& axis);

/// Marks the samples of a share of the distinct x as held out, never the smallest and the largest
/// x, and never as many that fewer than `needed` distinct x remain. Chosen by (seed, name).
void hold_out(SampleSet& set, const std::string& name, const Axis& axis, std::size_t needed,
              const FitOptions& options);

/// Whether the samples are all at one x, so that their fit is their median.
bool has_one_x(const SampleSet& set, const Axis& axis);

/// Sets an entry's errors, `final_fit` on all samples and `training_fit` on those held out, and its
/// points at `axis`. If a set has one x and nothing of it is held out, its repetitions are
/// (FitEntry::repetitions): in five turns every fifth in order of size, so that each is judged once
/// by the median of others; where `final_fit` is that median there is no error of the fit.
void judge(const SampleSet& set, const Axis& axis,
           const std::function<double(const Sample&)>& final_fit,
           const std::function<double(const Sample&)>& training_fit, FitEntry& entry);

/// The samples of `set` that a training fit may see; all of them where none is held out.
std::vector<const Sample*> training(const SampleSet& set);
std::vector<const Sample*> all(const SampleSet& set);

/// The origin of a number that was fitted to the entry.
ir::Provenance provenance(const ir::MeasurementSet& measured, const FitEntry& entry);

/// Appends the entry, and warnings about fewer than `enough` samples, disturbed ones and large
/// errors.
void report_entry(FitEntry entry, const SampleSet& set, std::size_t enough,
                  const FitContext& context);

/// Reports an entry for each name. `fit_entry` gets those that have samples; where it returns false
/// the entry is not reported.
void fit_entries(const FitContext& context, const EntryKind& kind,
                 const std::function<std::string(const ir::Measurement&)>& name_of,
                 const Axis& axis, const std::function<bool(FitEntry&, SampleSet&)>& fit_entry);

/// Holds samples out, fits a model to all samples and one without those held out, and judges both:
/// the entry gets its errors and points. `fit(samples)` gives a model, `predict(model, sample)`
/// what it says. Returns the model of all samples.
template <class Fit, class Predict>
auto fit_judged(SampleSet& set, const Axis& axis, std::size_t needed, const Fit& fit,
                const Predict& predict, const FitContext& context, FitEntry& entry) {
  hold_out(set, entry.name, axis, needed, context.options);
  auto model = fit(all(set));
  const auto seen = fit(training(set));
  judge(
      set, axis, [&](const Sample& sample) { return predict(model, sample); },
      [&](const Sample& sample) { return predict(seen, sample); }, entry);
  return model;
}

/// value = fixed + slope x `term`.
struct Line {
  double fixed = 0;
  double slope = 0;
};
Line fit_line(SampleSet& set, const Axis& axis, const Axis& term, const FitContext& context,
              FitEntry& entry);

/// value = factor x `base`.
double fit_factor(SampleSet& set, const Axis& axis, std::size_t needed, const Axis& base,
                  const FitContext& context, FitEntry& entry);

}  // namespace orrery::calibration
