/// What one member of a generation reads and writes below g/<generation>/ in the store (see
/// reports.h for the keys). Private to executor/launcher.
#pragma once
#include <cstdint>
#include <string>

#include "executor/launcher/rank_context.h"

namespace orrery::executor {

class GenerationBoard {
 public:
  /// Keeps a reference. `me`: position among the generation's members.
  GenerationBoard(RankContext& context, std::int64_t generation, int me)
      : context_(context), generation_(generation), me_(me) {}

  std::int64_t generation() const { return generation_; }
  int me() const { return me_; }
  /// The launcher has ended the generation, or the run.
  bool canceled() const { return context_.watcher.canceled(generation_); }

  /// Waits for the value, as long as connecting may take. Throws TransportError: timeout, or
  /// peer_lost when the generation is canceled.
  std::string get(const std::string& rest) const;
  void set(const std::string& rest, const std::string& value) const;
  /// True for the first member that claims `what`.
  bool claim(const std::string& what) const;

  /// To the run log, by the reporter's thread: now, or at an instant of now_ns().
  void event(const std::string& kind, const std::string& detail);
  void event_at(std::int64_t ns, const std::string& kind, const std::string& detail);
  /// As event(), in the store when this returns: for a process that may be about to end. One of a
  /// kind; the launcher finds it under out/event/<m>/<kind>.
  void last_word(const std::string& kind, const std::string& detail) const;

 private:
  std::string key(const std::string& rest) const;

  RankContext& context_;
  std::int64_t generation_;
  int me_;
  int events_ = 0;
};

}  // namespace orrery::executor
