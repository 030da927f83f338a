// Matrix products and copies.
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
    const auto i = static_cast<std::size_t>(upper - knots.begin());
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

void add_curve(const Curve& curve, const Measurement& what, const ir::MeasurementSet& measured,
               const FitOptions& options, FitEntry& entry, FitReport& report) {
  const auto peak = options.peaks.find({what.device_type, what.dtype});
  if (peak == options.peaks.end()) {
    report.warnings.push_back(entry.name +
                              ": no peak of this device and dtype was given: no efficiency curve");
  }
  ir::EfficiencyCurve made{what.device_type, what.dtype, {}, provenance(measured, entry)};
  bool above = false;
  for (std::size_t k = 0; k < curve.knots.size(); ++k) {
    const double work = std::exp(curve.knots[k]);
    entry.parameters.push_back(
        {fmt::format("rate at {:.3g} FLOP", work), curve.rates[k], "FLOP/s"});
    if (peak == options.peaks.end()) continue;
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

void fit_products(const ir::MeasurementSet& measured, const FitOptions& options,
                  FitReport& report) {
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        if (one.kind != MeasurementKind::gemm || !(one.flops.value > 0)) return std::string();
        return fmt::format("{} matrix products {}", one.device_type, ir::name_of(one.dtype));
      },
      flops_of);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, "gemm", "work", "FLOP", "rate", "FLOP/s");
    if (!set.samples.empty()) {
      hold_out(set, name, flops_of, kProductsPerKnot, options);
      const Curve curve = curve_of(all(set));
      const Curve seen = curve_of(training(set));
      judge(
          set, flops_of, [&](const Sample& sample) { return curve.seconds(sample); },
          [&](const Sample& sample) { return seen.seconds(sample); }, entry);
      for (FitPoint& point : entry.points) {  // rates instead of times
        for (double* time : {&point.measured, &point.fitted, &point.curve}) *time = point.x / *time;
      }
      add_curve(curve, set.samples.front().what, measured, options, entry, report);
    }
    report_entry(std::move(entry), set, kEnoughSizes, options, report);
  }
}

/// Profiles have no bandwidth of memory: the cluster file's holds, and this says how near it is.
void check_copies(const ir::MeasurementSet& measured, const FitOptions& options,
                  FitReport& report) {
  const Axis axis = [](const Measurement& one) { return one.bytes.value; };
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        return one.kind == MeasurementKind::memory_bandwidth
                   ? fmt::format("{} memory bandwidth", one.device_type)
                   : std::string();
      },
      axis);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, "check", "copy", "B", "time", "s");
    if (!set.samples.empty()) {
      hold_out(set, name, axis, 2, options);
      const auto line_of = [&](const std::vector<const Sample*>& samples) {
        Design design;
        for (const Sample* sample : samples) design.add({1, 2 * axis(sample->what)}, sample->value);
        return fit_relative(design);
      };
      const std::vector<double> line = line_of(all(set));
      const std::vector<double> seen = line_of(training(set));
      const auto with = [&](const std::vector<double>& found) {
        return [&](const Sample& sample) { return found[0] + found[1] * 2 * axis(sample.what); };
      };
      judge(set, axis, with(line), with(seen), entry);
      entry.parameters.push_back({"start", line[0], "s"});
      if (line[1] > 0) {
        entry.parameters.push_back({"bandwidth, read and written", 1 / line[1], "B/s"});
      }
    }
    report_entry(std::move(entry), set, kEnoughSizes, options, report);
  }
}

}  // namespace

void fit_compute(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report) {
  fit_products(measured, options, report);
  check_copies(measured, options, report);
}

}  // namespace orrery::calibration
