/// What a rank keeps from one generation to the next, and what a member of a generation reads and
/// writes below g/<generation>/ in the store (messages.h lists the keys). Private to
/// executor/launcher.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "executor/launcher/checkpoint.h"
#include "executor/launcher/messages.h"
#include "executor/launcher/rank.h"
#include "executor/launcher/settings.h"
#include "executor/launcher/state.h"
#include "executor/net/store.h"

namespace orrery::executor {

/// How long one question to the store waits before the rank looks around again.
inline constexpr std::chrono::milliseconds kStoreWait{100};

struct RankContext {
  RankEnvironment environment;
  RunSettings settings;
  StoreClient& store;
  Reporter& reporter;
  CommandListener& commands;
  SharedThreadRanks* threads = nullptr;  ///< Null: the rank is a process.
  std::vector<StateBank> banks = {};     ///< Newest first, at most two versions.
  std::vector<RunMark> marks = {};       ///< In the checkpoint folders.
  /// Each strikes once, also where its step is repeated.
  std::set<const FaultInjection*> struck = {};

  /// The value of a key, which is waited for; none after a command to stop.
  std::optional<std::string> wait_for(const std::string& key);
};

class GenerationKeys {
 public:
  /// Keeps a reference. `me`: position among the generation's members.
  GenerationKeys(RankContext& context, std::int64_t generation, int me)
      : context_(context), generation_(generation), me_(me) {}

  std::int64_t generation() const { return generation_; }
  int me() const { return me_; }
  /// The launcher has ended the generation, or the run.
  bool canceled() const { return context_.commands.canceled(generation_); }
  /// Throws TransportError where canceled().
  void check_canceled() const;

  /// Waits for the value, as long as connecting may take. Throws TransportError: timeout, or
  /// peer_lost when the generation is canceled.
  std::string get(const std::string& rest) const;
  /// As get(), of `<what>/<m>`, which takes member `m` as long as it takes to read or move state: a
  /// wait's limit after its last busy().
  std::string get_of(const std::string& what, int m) const;
  /// Shows those in get_of() that this member goes on. Throws as check_canceled().
  void busy() const;
  void set(const std::string& rest, const std::string& value) const;
  /// All values whose key starts with `prefix`, by their whole key.
  std::map<std::string, std::string> list(const std::string& prefix) const;
  /// To the launcher, by the reporter's thread.
  void post(const std::string& rest, const std::string& value) const;
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
