/// Which call does which run, where several calls work on one results folder: processes of this
/// host, or of others that see the folder over a network file system.
#pragma once
#include <chrono>
#include <map>
#include <set>
#include <string>

#include "experiments/study/clock.h"

namespace orrery::experiments {

/// A call at work is a file `<call>.call`, locked as long as the call lives and written anew every
/// few seconds; a run that it has taken is a file `<run>.taken` with the call's name in it. Needs
/// of the file system that O_EXCL creates a file once and that renaming is atomic, as on NFS
/// from version 3 on. Locks are not needed: a call on another host whose file is not written for
/// `patience` counts as gone. Where that is wrong, a run is done twice and its result stays one.
///
/// Members throw std::system_error where a file cannot be written.
class Claims {
 public:
  static constexpr std::chrono::seconds kPatience{45};

  /// Nothing is written yet. `group`: what the call belongs to, see dissolve().
  explicit Claims(std::string folder, std::string group = "", Clock::duration patience = kPatience);
  /// leave() in the process that entered.
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// Of this call: host, process and time; without dots.
  const std::string& name() const { return name_; }
  /// Tells the other calls that this one is at work. Makes the folder.
  void enter();
  /// Gives back what was taken, and removes the folder if nobody else needs it.
  void leave();
  /// That it still is: to be called a few times a second, writes now and then.
  void beat();

  /// True if the run is now this call's. False if another call has it that is alive, or of which
  /// nothing is known yet.
  bool take(const std::string& run);
  void give_back(const std::string& run);
  /// Another call has the run, and is at work.
  bool is_at_work_on(const std::string& run);

  /// No process of the call of that name exists.
  bool is_gone(const std::string& call);
  /// Removes what calls that are gone have left: their claims and their files.
  void tidy();
  /// Says that all calls of the group have ended, which spares the others waiting for a sign of
  /// them.
  void dissolve(const std::string& group) const;

 private:
  enum class Life { gone, unknown, at_work };
  /// What was read last, and since when it reads so.
  struct Seen {
    std::string text;
    Clock::time_point since;
    bool changed = false;
  };

  std::string call_file(const std::string& call) const;
  std::string claim_file(const std::string& run) const;
  std::string text() const;
  Life life_of(const std::string& call);
  Life watched(const std::string& file, const std::string& text);
  Life holder_of(const std::string& run, std::string& holder);

  std::string folder_;
  std::string group_;
  Clock::duration patience_;
  std::string name_;
  std::string kernel_;  ///< Of this host since it started: calls with the same see our locks.
  int file_ = -1;       ///< The call's own, with its lock.
  int owner_ = 0;       ///< Process that entered.
  long beats_ = 0;
  Clock::time_point last_beat_;
  std::set<std::string> taken_;
  std::map<std::string, Seen> seen_;  ///< By file.
};

}  // namespace orrery::experiments
