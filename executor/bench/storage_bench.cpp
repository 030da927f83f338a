#include "executor/bench/storage_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>

#include "executor/launcher/checkpoint.h"
#include "models/base/check.h"
#include "models/base/rng.h"

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kDevice = 0;
constexpr const char* kRun = "bench";

/// A folder of its own below the one that was named, gone when this goes.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent)
      : path_(fs::path(parent) / fmt::format("orrery-bench-{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path() const { return path_.string(); }

  /// Asks the system to forget what it holds of the files, which lie in folders of runs; they are
  /// on the disk already.
  void drop_cached() const {
    for (const auto& file : fs::recursive_directory_iterator(path_)) {
      const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      ::close(fd);
    }
  }

 private:
  fs::path path_;
};

StateBank make_bank(std::size_t bytes) {
  StateBank::Entry entry;
  entry.slice = {0, 0, 0, static_cast<std::int64_t>(bytes)};
  entry.unit_bytes = 1;
  entry.parts.emplace_back(bytes);
  Rng rng(4);
  for (std::byte& one : entry.parts.front()) one = static_cast<std::byte>(rng() & 0xff);
  StateBank bank;
  bank.version = {1, 0};
  bank.add(std::move(entry));
  return bank;
}

}  // namespace

void time_checkpoint(const BenchCase& one, const std::string& folder, const SamplingRule& rule,
                     const std::vector<ir::Measurement>& before, BenchClock& clock,
                     const BenchSink& sink) {
  if (Sampler(rule, before).done()) return;
  const bool write = one.key.kind == ir::MeasurementKind::checkpoint_write;
  ORRERY_CHECK(write || one.key.kind == ir::MeasurementKind::checkpoint_read,
               "a case of kind {} is none of storage", static_cast<int>(one.key.kind));
  const ScratchFolder scratch(folder);
  const CheckpointFolder checkpoints(scratch.path(), kRun);
  const StateBank bank = make_bank(static_cast<std::size_t>(one.key.bytes.value));
  const std::vector<StateSlice> slices = {bank.entries().front().slice};
  const auto save = [&] {
    const auto saved = checkpoints.save(bank, kDevice, slices);
    if (saved.problem) throw std::runtime_error(*saved.problem);
  };
  TimedWork work;
  work.computes = false;
  if (write) {
    work.run = [&](int) { save(); };
  } else {
    save();
    work.prepare = [&] { scratch.drop_cached(); };
    work.run = [&](int) {
      const CheckpointFolder::Found found = checkpoints.read();
      if (found.banks.size() == 1 && found.problems.empty()) return;
      throw std::runtime_error(found.problems.empty() ? "the checkpoint is gone from " + folder
                                                      : found.problems.front());
    };
  }
  take_samples(one.key, work, rule, before, clock, sink.sample, sink.check);
}

}  // namespace orrery::executor
