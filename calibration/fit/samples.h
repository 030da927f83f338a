/// What fits are made of: repetitions of one measurement reduced to their median, and the choice of
/// what is kept from a fit. Private to calibration/fit.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calibration/fit/fit.h"
#include "models/ir/measurement.h"

namespace orrery::calibration {

FitEntry make_entry(std::string name, std::string kind, std::string x_name = {},
                    std::string x_unit = {}, std::string y_name = {}, std::string y_unit = {});

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

/// What stands on the x axis and decides what is held out: a size, a number of layers.
using Axis = std::function<double(const ir::Measurement&)>;
inline double bytes_of(const ir::Measurement& one) { return one.bytes.value; }

/// Sizes below which an entry warns that more would say more.
inline constexpr std::size_t kEnoughSizes = 3;

/// Measurements by entry. `name_of`: the entry that a measurement belongs to, "" for none of this
/// fit's. Names are sorted; repetitions of equal ir::measurement_key are one sample.
std::map<std::string, SampleSet> group_samples(
    const ir::MeasurementSet& measured,
    const std::function<std::string(const ir::Measurement&)>& name_of, const Axis& axis);

/// Marks the samples of a share of the distinct x as held out, never the smallest and the largest
/// x, and never so many that fewer than `needed` distinct x remain. Chosen by (seed, name).
void hold_out(SampleSet& set, const std::string& name, const Axis& axis, std::size_t needed,
              const FitOptions& options);

/// Whether the samples are all at one x, so that their fit is their median.
bool has_one_x(const SampleSet& set, const Axis& axis);

/// Sets an entry's errors, `final_fit` on all samples and `training_fit` on those held out, and its
/// points at `axis`. Of a set with one x of which nothing is held out, repetitions are
/// (FitEntry::repetitions): in five turns every fifth in order of size, so that each is judged once
/// by the median of others; where `final_fit` is that median there is no error of the fit.
void judge(const SampleSet& set, const Axis& axis,
           const std::function<double(const Sample&)>& final_fit,
           const std::function<double(const Sample&)>& training_fit, FitEntry& entry);

/// The samples of `set` that a training fit may see; all of them where none is held out.
std::vector<const Sample*> training(const SampleSet& set);
std::vector<const Sample*> all(const SampleSet& set);

/// What stands with a number that was fitted to the entry.
ir::Provenance provenance(const ir::MeasurementSet& measured, const FitEntry& entry);

/// Appends the entry, and warnings about too few samples, disturbed ones and large errors.
void report_entry(FitEntry entry, const SampleSet& set, std::size_t needed,
                  const FitOptions& options, FitReport& report);

}  // namespace orrery::calibration
