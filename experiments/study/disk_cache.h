/// Answers that the user's computer remembers from run to run: simulated iterations and transfers,
/// reports of whole runs. One SQLite file that any number of processes use at once.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models/interfaces/answer_store.h"

namespace orrery::experiments {

/// `$XDG_CACHE_HOME/orrery`, else `~/.cache/orrery`; none: neither variable is set.
std::optional<std::string> default_cache_folder();

/// On a network file system each host has a file of its own. Answers of other shared code
/// (version_of({})) are not found; what depends on a planner has its version in the key. The
/// answers that were not used for the longest time make room for new ones. A file that cannot be
/// used (damaged, read-only, locked, full) is left aside: nothing is found in it and nothing kept
/// from then on, and no run ends for it. An answer whose bytes have changed on the disk is not
/// found.
///
/// Works in forks: each process has a connection of its own, made when it is first needed.
class DiskCache final : public models::AnswerStore {
 public:
  static constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

  /// `folder` is made if need be. `on_problem` is told once in each process why the file is left
  /// aside, in words; may be empty. Nothing is opened yet.
  explicit DiskCache(const std::string& folder,
                     std::function<void(const std::string&)> on_problem = {},
                     std::int64_t most_bytes = kMostBytes);
  ~DiskCache() override;

  std::optional<std::string> find(const std::string& key) const override;
  void keep(const std::string& key, const std::string& answer) const override;

  /// Opens the file, to see whether that works, and closes it again: false if it is left aside.
  bool usable() const;
  const std::string& path() const { return path_; }

 private:
  class Connection;
  void open() const;
  template <class Use>
  auto guarded(const Use& use) const;

  std::string path_;
  std::function<void(const std::string&)> on_problem_;
  std::int64_t most_bytes_;
  mutable std::unique_ptr<Connection> connection_;
  mutable int owner_ = 0;  ///< Process of the connection.
  mutable bool aside_ = false;
};

}  // namespace orrery::experiments
