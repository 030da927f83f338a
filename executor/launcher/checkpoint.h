/// Checkpoints on disk: one file for each block of a rank and version, with a checksum over all of
/// it, written to a temporary name and renamed. A file that is torn, corrupt or of another run is
/// not offered. The two newest versions of each rank are kept.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/launcher/inventory.h"
#include "executor/launcher/state.h"

namespace orrery::executor {

/// A folder with checkpoints of one run.
class CheckpointFolder {
 public:
  /// `folder` need not exist. Files of other runs are left alone.
  CheckpointFolder(std::string folder, std::string run) : folder_(std::move(folder)), run_(run) {}

  /// Writes `slices` of the bank. Empty when all went well; else the problem in words ("cannot
  /// write ...: No space left on device"), with no half-written file left.
  std::optional<std::string> save(const StateBank& bank, std::int32_t device,
                                  const std::vector<StateSlice>& slices) const;
  /// Removes this device's files of versions before `oldest`.
  void remove_before(std::int32_t device, StateVersion oldest) const;

  struct Found {
    std::vector<StateBank> banks;       ///< One for each version.
    std::vector<std::string> problems;  ///< Files that were not used, and why.
  };
  /// Reads and checks the files of all devices whose block is `part` modulo `parts`.
  Found read(int part = 0, int parts = 1) const;

 private:
  std::string folder_;
  std::string run_;
};

/// Writes checkpoints beside training: one at a time, the next one waits for the one before it.
class CheckpointWriter {
 public:
  struct Target {
    CheckpointFolder folder;
    std::vector<StateSlice> slices;
    std::string name;  ///< "local", "cloud".
  };
  /// What a finished or failed write has to say, for the log.
  struct Note {
    std::int64_t at_ns = 0;
    std::string kind;  ///< "checkpoint" or "checkpoint_failed".
    std::string detail;
  };
  CheckpointWriter(std::int32_t device, std::vector<Target> targets)
      : device_(device), targets_(std::move(targets)) {}
  ~CheckpointWriter() { wait(); }
  bool wanted() const { return !targets_.empty(); }
  void start(StateBank bank);
  void wait();
  std::vector<Note> take_notes();

 private:
  void write(const StateBank& bank);

  std::int32_t device_;
  std::vector<Target> targets_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Note> notes_;
  std::map<std::string, StateVersion> last_;  ///< By target.
};

}  // namespace orrery::executor
