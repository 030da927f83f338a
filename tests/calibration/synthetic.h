/// Measurements of a machine whose true parameters are known, with noise and gross outliers.
#pragma once
#include <functional>
#include <string>

#include "models/base/rng.h"
#include "models/ir/measurement.h"

namespace orrery::calibration::synthetic {

struct Noise {
  double deviation = 0;  ///< Relative, of each repetition.
  double outliers = 0;   ///< Share of repetitions that take ten times as long.
  int repetitions = 1;
  std::uint64_t seed = 7;
};

/// Appends repetitions of `what`, whose true time is `seconds`.
inline void measure(ir::MeasurementSet& set, ir::Measurement what, double seconds,
                    const Noise& noise) {
  Rng rng = Rng(noise.seed).fork(set.measurements.size());
  for (int i = 0; i < noise.repetitions; ++i) {
    what.repetition = i;
    double factor = 1 + noise.deviation * rng.normal();
    if (rng.bernoulli(noise.outliers)) factor = 10;
    what.wall = Seconds{seconds * factor};
    set.measurements.push_back(what);
  }
}

inline ir::MeasurementSet machine() {
  ir::MeasurementSet set;
  set.machine = "two cores";
  set.libraries = "test 1.0";
  set.date = "2026-01-02T03:04:05Z";
  set.model = "tiny";
  set.backend = "cpu";
  return set;
}

/// 8 B to 64 MiB in steps of four between two devices.
inline void measure_messages(ir::MeasurementSet& set, const std::string& link_class,
                             const std::function<double(double)>& seconds, const Noise& noise,
                             bool both_ways = false) {
  for (double bytes = 8; bytes <= 64.0 * 1024 * 1024; bytes *= 4) {
    ir::Measurement what;
    what.kind = ir::MeasurementKind::point_to_point;
    what.source = {0};
    what.destination = {1};
    what.link_class = link_class;
    what.both_ways = both_ways;
    what.bytes = Bytes{bytes};
    measure(set, what, seconds(bytes), noise);
  }
}

inline ir::Measurement block(ir::Pass pass, int layers, int micro_batch, int tensor_parallel = 1) {
  ir::Measurement what;
  what.kind = ir::MeasurementKind::block;
  what.device_type = "cpu";
  what.pass = pass;
  what.layers = layers;
  what.micro_batch_size = micro_batch;
  what.tensor_parallel = tensor_parallel;
  what.sequence_length = 64;
  return what;
}

}  // namespace orrery::calibration::synthetic
