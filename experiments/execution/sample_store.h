/// The sample file of a calibration while it grows.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/ir/measurement.h"

namespace orrery::experiments {

class SampleStore {
 public:
  /// Goes on with the file if it is there, else begins it. A row that was being written when its
  /// process was killed is removed. Throws ConfigError with all problems, also when the samples
  /// were taken on another machine, with other libraries, another model or back end; and
  /// std::runtime_error when the file cannot be written.
  SampleStore(std::string path, const ir::MeasurementSet& about);
  ~SampleStore();
  SampleStore(const SampleStore&) = delete;
  SampleStore& operator=(const SampleStore&) = delete;

  /// In one write: whatever ends the process, whole rows are left. A quick sample makes all of the
  /// file quick (set_sampling()). Throws std::runtime_error.
  void add(const ir::Measurement& sample);
  /// Says in the file how its samples were taken (MeasurementSet::sampling). Throws
  /// std::runtime_error.
  void set_sampling(const std::string& sampling);
  /// What is there of the measurement with this key (ir::measurement_key).
  std::vector<ir::Measurement> of(const ir::Measurement& key) const;
  const ir::MeasurementSet& set() const { return set_; }

 private:
  /// Opens the file, to append to it. Throws std::runtime_error.
  void open();

  std::string path_;
  int file_ = -1;
  std::string sampling_;  ///< Of what is added.
  ir::MeasurementSet set_;
  std::map<std::string, std::vector<std::size_t>> by_key_;  ///< Indices into set_.measurements.
};

/// Samples of a finished or interrupted calibration. Throws ConfigError.
ir::MeasurementSet load_samples(const std::string& path);

}  // namespace orrery::experiments
