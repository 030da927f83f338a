// Matrix products, copies and optimizer steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "models/ir/names.h"

namespace orrery::calibration {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

/// Knots of an efficiency curve at most; each has at least kProductsPerKnot products.
constexpr std::size_t kMaxKnots = 6;
constexpr std::size_t kProductsPerKnot = 3;

double flops_of(const Measurement& one) { return one.flops.value; }

/// Evenly spaced in log(FLOPs) over the products.
std::vector<double> knots_of(const std::vector<const Sample*>& samples) {
  std::set<double> work;
  for (const Sample* sample : samples) work.insert(std::log(sample->what.flops.value));
  const std::size_t count = std::clamp<std::size_t>(work.size() / kProductsPerKnot, 1, kMaxKnots);
  if (count == 1) return {0.5 * (*work.begin() + *work.rbegin())};
  std::vector<double> knots;
  for (std::size_t k = 0; k < count; ++k) {
    const double share = static_cast<double>(k) / static_cast<double>(count - 1);
    knots.push_back(*work.begin() + share * (*work.rbegin() - *work.begin()));
  }
  return knots;
}

/// Weights of the knots at log(FLOPs), as ir::EfficiencyCurve is read: linear between them,
/// constant outside.
std::vector<double> weights_at(const std::vector<double>& knots, double work) {
  std::vector<double> weights(knots.size(), 0.0);
  if (work <= knots.front() || knots.size() == 1) {
    weights.front() = 1;
  } else if (work >= knots.back()) {
    weights.back() = 1;
  } else {
    const auto upper = std::upper_bound(knots.begin(), knots.end(), work);
    const std::size_t i = upper - knots.begin();
    weights[i] = (work - knots[i - 1]) / (knots[i] - knots[i - 1]);
    weights[i - 1] = 1 - weights[i];
  }
  return weights;
}

struct Curve {
  std::vector<double> knots;  ///< log(FLOPs).
  std::vector<double> rates;  ///< FLOP/s.
  double seconds(const Sample& sample) const {
    const double work = sample.what.flops.value;
    return work / std::max(evaluate(weights_at(knots, std::log(work)), rates), 1.0);
  }
};

/// Rates at the knots; a knot without products near it takes part in no row and is left out.
Curve curve_of(const std::vector<const Sample*>& samples) {
  Curve curve;
  Design design;
  curve.knots = knots_of(samples);
  for (const Sample* sample : samples) {
    const double work = sample->what.flops.value;
    design.add(weights_at(curve.knots, std::log(work)), work / sample->value);
  }
  curve.rates = fit_relative(design);
  for (std::size_t k = curve.knots.size(); k-- > 0;) {
    if (curve.rates[k] > 0 || curve.knots.size() == 1) continue;
    curve.rates.erase(curve.rates.begin() + static_cast<std::ptrdiff_t>(k));
    curve.knots.erase(curve.knots.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return curve;
}

void add_curve(const Curve& curve, const Measurement& what, const FitContext& context,
               FitEntry& entry) {
  const auto& peaks = context.options.peaks;
  const auto peak = peaks.find({what.device_type, what.dtype});
  FitReport& report = context.report;
  if (peak == peaks.end()) {
    report.warnings.push_back(entry.name +
                              ": no peak of this device and dtype was given: no efficiency curve");
  }
  ir::EfficiencyCurve made{what.device_type, what.dtype, {}, provenance(context.measured, entry)};
  bool above = false;
  for (std::size_t k = 0; k < curve.knots.size(); ++k) {
    const double work = std::exp(curve.knots[k]);
    entry.parameters.push_back(
        {fmt::format("rate at {:.3g} FLOP", work), curve.rates[k], "FLOP/s"});
    if (peak == peaks.end()) continue;
    const double efficiency = curve.rates[k] / peak->second.value;
    above = above || efficiency > 1;
    made.points.push_back({Flops{work}, efficiency});
  }
  if (made.points.empty()) return;
  if (above) {
    report.warnings.push_back(entry.name + ": faster than the declared peak of the device");
  }
  report.profile.efficiencies.push_back(std::move(made));
}

void fit_products(const FitContext& context) {
  fit_entries(
      context, {"gemm", "work", "FLOP", "rate", "FLOP/s"},
      [](const Measurement& one) {
        if (one.kind != MeasurementKind::gemm || !(one.flops.value > 0)) return std::string();
        return fmt::format("{} matrix products {}", one.device_type, ir::name_of(one.dtype));
      },
      flops_of,
      [&](FitEntry& entry, SampleSet& set) {
        const Curve curve = fit_judged(
            set, flops_of, kProductsPerKnot, curve_of,
            [](const Curve& of, const Sample& sample) { return of.seconds(sample); }, context,
            entry);
        for (FitPoint& point : entry.points) {  // rates instead of times
          for (double* time : {&point.measured, &point.fitted, &point.curve}) {
            *time = point.x / *time;
          }
        }
        add_curve(curve, set.samples.front().what, context, entry);
        return true;
      });
}

/// Profiles have no memory bandwidth: that of the cluster file holds, and this says how near it is.
void check_copies(const FitContext& context) {
  fit_entries(
      context, {"check", "copy", "B", "time", "s"},
      [](const Measurement& one) {
        return one.kind == MeasurementKind::memory_bandwidth
                   ? fmt::format("{} memory bandwidth", one.device_type)
                   : std::string();
      },
      bytes_of,
      [&](FitEntry& entry, SampleSet& set) {
        const Axis moved = [](const Measurement& one) { return 2 * one.bytes.value; };
        const Line line = fit_line(set, bytes_of, moved, context, entry);
        entry.parameters.push_back({"start", line.fixed, "s"});
        if (line.slope > 0) {
          entry.parameters.push_back({"bandwidth, read and written", 1 / line.slope, "B/s"});
        }
        return true;
      });
}

void fit_optimizer(const FitContext& context) {
  const Axis parameters = [](const Measurement& one) { return one.parameters; };
  fit_entries(
      context, {"optimizer", "parameters", "", "time", "s"},
      [](const Measurement& one) {
        if (one.kind != MeasurementKind::optimizer) return std::string();
        return fmt::format("{} optimizer {}", one.device_type, ir::name_of(one.dtype));
      },
      parameters,
      [&](FitEntry& entry, SampleSet& set) {
        const Line line = fit_line(set, parameters, parameters, context, entry);
        entry.parameters = {{"fixed", line.fixed, "s"}, {"per parameter", line.slope, "s"}};
        const Measurement& what = set.samples.front().what;
        context.report.profile.optimizers.push_back({what.device_type, what.dtype,
                                                     Seconds{line.fixed}, Seconds{line.slope},
                                                     provenance(context.measured, entry)});
        return true;
      });
}

}  // namespace

void fit_compute(const FitContext& context) {
  fit_products(context);
  check_copies(context);
  fit_optimizer(context);
}

}  // namespace orrery::calibration
