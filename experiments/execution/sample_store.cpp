#include "experiments/execution/sample_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "calibration/samples.h"
#include "models/base/file.h"
#include "models/ir/measurement_text.h"

namespace orrery::experiments {
namespace {

void check_same(const std::string& path, const ir::MeasurementSet& there,
                const ir::MeasurementSet& now, config::Diagnostics& diagnostics) {
  const auto same = [&](const char* what, const std::string& before, const std::string& value) {
    if (before == value) return;
    diagnostics.add({path, 0, 0},
                    fmt::format("its {} is '{}', this calibration's '{}'", what, before, value),
                    "name another folder with --out, or remove the file");
  };
  same("machine", there.machine, now.machine);
  same("libraries", there.libraries, now.libraries);
  same("model", there.model, now.model);
  same("backend", there.backend, now.backend);
}

}  // namespace

SampleStore::SampleStore(std::string path, const ir::MeasurementSet& about)
    : path_(std::move(path)), sampling_(about.sampling), set_(about) {
  set_.measurements.clear();
  std::error_code error;
  const bool there = std::filesystem::exists(path_, error);
  std::string text = calibration::samples_header(set_);
  if (there) {
    config::Diagnostics diagnostics;
    calibration::SampleFile file = calibration::read_samples(path_, diagnostics);
    if (diagnostics.empty()) check_same(path_, file.set, about, diagnostics);
    diagnostics.raise();
    set_ = std::move(file.set);
    text = file.torn ? calibration::samples_csv(set_) : "";
  }
  if (!text.empty()) {
    if (const auto problem = write_file_atomically(path_, text)) {
      throw std::runtime_error(*problem);
    }
  }
  for (std::size_t i = 0; i < set_.measurements.size(); ++i) {
    by_key_[ir::measurement_key(set_.measurements[i])].push_back(i);
  }
  open();
}

void SampleStore::open() {
  if (file_ >= 0) ::close(file_);
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
}

void SampleStore::set_sampling(const std::string& sampling) {
  if (set_.sampling == sampling) return;
  set_.sampling = sampling;
  if (const auto problem = write_file_atomically(path_, calibration::samples_csv(set_))) {
    throw std::runtime_error(*problem);
  }
  open();  // The file is another one now.
}

SampleStore::~SampleStore() {
  if (file_ >= 0) ::close(file_);
}

void SampleStore::add(const ir::Measurement& sample) {
  if (!sampling_.empty()) set_sampling(sampling_);
  if (const int error = append_fully(file_, calibration::sample_row(sample))) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(error)));
  }
  by_key_[ir::measurement_key(sample)].push_back(set_.measurements.size());
  set_.measurements.push_back(sample);
}

std::vector<ir::Measurement> SampleStore::of(const ir::Measurement& key) const {
  std::vector<ir::Measurement> out;
  const auto found = by_key_.find(ir::measurement_key(key));
  if (found == by_key_.end()) return out;
  for (const std::size_t index : found->second) out.push_back(set_.measurements[index]);
  return out;
}

ir::MeasurementSet load_samples(const std::string& path) {
  config::Diagnostics diagnostics;
  calibration::SampleFile file = calibration::read_samples(path, diagnostics);
  diagnostics.raise();
  return std::move(file.set);
}

}  // namespace orrery::experiments
