/// Checkpoints on disk: FOLDER/RUN/[NODE/]step-S.generation-G.block-B.device-D.state, one file for
/// each block of a rank and version, with a checksum over all of it, written to a temporary name
/// and renamed. A file that is torn, corrupt or of another run is not offered.
///
/// The three newest versions are kept, since ranks are up to two versions apart: one has written
/// version v + 1 while another, one finished step behind, still writes v and v - 1 is the newest
/// that all have. Where a rank could not write, the newest that all have may be older: it is kept,
/// too, until there is a newer one.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/launcher/inventory.h"
#include "executor/launcher/state.h"

namespace orrery::executor {

/// Checkpoints of one run below a folder, of one node if it is named.
class CheckpointFolder {
 public:
  /// `folder` need not exist. What belongs to other runs is left alone.
  CheckpointFolder(const std::string& folder, std::string run, const std::string& node = "");

  struct Saved {
    std::int64_t bytes = 0;              ///< Of the files.
    std::optional<std::string> problem;  ///< "cannot write ...: No space left on device".
  };
  /// Writes `slices` of the bank. After a problem no half-written file is left.
  Saved save(const StateBank& bank, std::int32_t device,
             const std::vector<StateSlice>& slices) const;
  /// Removes files of versions before `oldest`, of all devices: also of those that left.
  void remove_before(StateVersion oldest) const;
  /// Removes the files that this device wrote of the version.
  void remove(StateVersion version, std::int32_t device) const;

  struct Found {
    std::vector<StateBank> banks;       ///< One for each version.
    std::vector<std::string> problems;  ///< Files that were not used, and why.
  };
  /// Reads and checks the files of all devices whose block is `part` modulo `parts`, which may take
  /// long; calls `before_each` file, where it is set, and passes on what that throws.
  Found read(const std::function<void()>& before_each = {}, int part = 0, int parts = 1) const;

 private:
  std::string folder_;
  std::string run_;
};

/// Says that a run lives, from construction to destruction or the end of the process: a shared lock
/// on FOLDER/RUN/lock. A folder that cannot be written is for the first checkpoint to tell.
class RunMark {
 public:
  RunMark(const std::string& folder, const std::string& run);
  ~RunMark();
  RunMark(RunMark&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  RunMark& operator=(RunMark&&) = delete;

 private:
  int file_ = -1;
};

/// Removes the checkpoints of all other runs below `folder` that do not live, and their folders if
/// nothing else is in them. Returns the names of these runs, ascending.
std::vector<std::string> prune_checkpoints(const std::string& folder, const std::string& run);

/// Writes checkpoints while training goes on: one at a time, the next waits for the one before it.
///
/// Each that has been written to one target at least gives a note "checkpoint" whose detail is
/// exactly `rank=<int> iteration=<int> bytes=<int> seconds=<%.9g>`: bytes of the files in all
/// targets, and how long it held training. Each target that failed gives "checkpoint_failed".
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
  using Versions = std::deque<StateVersion>;  ///< Oldest first.
  /// Tells the other ranks which versions this one has `written` to a target and kept, and returns
  /// the newest that all who write there have; none: there is no such. Throws TransportError where
  /// that is not known: nothing is removed then.
  using SavedByAll = std::function<std::optional<StateVersion>(const std::string& target,
                                                               const Versions& written)>;
  /// `saved_by_all` is called from the thread that writes; empty: no other rank writes.
  CheckpointWriter(std::int32_t device, int rank, std::vector<Target> targets,
                   SavedByAll saved_by_all = {})
      : device_(device),
        rank_(rank),
        targets_(std::move(targets)),
        saved_by_all_(std::move(saved_by_all)) {}
  ~CheckpointWriter() { wait(); }
  bool wanted() const { return !targets_.empty(); }
  /// Returns when the write before it has ended and this one has begun. `since_ns`: of now_ns(),
  /// when training stopped for this checkpoint; what passed since then held it.
  void start(StateBank bank, std::int64_t since_ns);
  void wait();
  std::vector<Note> take_notes();

 private:
  void write(const StateBank& bank, double held_seconds);
  /// Removes what the newest version of `written` makes needless.
  void remove_old(const Target& target, Versions& written) const;
  void note(const char* kind, std::string detail);

  std::int32_t device_;
  int rank_;
  std::vector<Target> targets_;
  SavedByAll saved_by_all_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Note> notes_;
  std::map<std::string, Versions> written_;  ///< By target; those that are kept.
};

}  // namespace orrery::executor
