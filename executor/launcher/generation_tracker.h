/// What the launcher learns about one generation from its members, and the run log made of it: all
/// times on rank 0's clock, counted from the start of the run. Private to executor/launcher.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/launcher/messages.h"
#include "models/ir/run_log.h"

namespace orrery::executor {

class GenerationTracker {
 public:
  /// `origin_ns`: start of the run on the launcher's clock. Keeps a reference to the program.
  GenerationTracker(const ir::Program& program, std::int64_t number,
                    std::vector<std::int32_t> members, std::int64_t origin_ns);

  /// A message below g/<g>/out/ (messages.h), which may come twice. Throws std::runtime_error if it
  /// cannot be read.
  void take(const std::string& rest, const std::string& value);
  void add_event(std::int64_t launcher_ns, const std::string& kind, const std::string& detail);

  const std::vector<std::int32_t>& members() const { return members_; }
  int ranks() const { return static_cast<int>(program_.ranks.size()); }
  const std::optional<MemberStatus>& status(int member) const { return statuses_[member]; }
  /// Steps that all ranks have finished and that were not given out before, ascending.
  std::vector<StepLine> take_finished();
  /// Number of the last finished step; `none` before the first.
  std::int64_t last_step(std::int64_t none) const;
  /// Longest over members of the named event, in run time; none if nobody had it.
  std::optional<std::int64_t> last_event(const std::string& kind) const;
  /// End of the first step on all ranks, in run time.
  std::optional<std::int64_t> first_step_end() const;
  /// Member events that were not given out before, as they came.
  std::vector<EventReport> take_events();
  /// Details of member events of a kind, by member.
  std::vector<std::string> details(const std::string& kind) const;
  /// The state that the generation begins with and where its slices came from, in words; empty
  /// until all members have it.
  std::string state_found() const;

  GenerationSummary summary() const;
  ir::RunLog log() const;

 private:
  struct Event {
    int member = -1;  ///< -1: the launcher.
    EventReport report;
  };
  using Reports = std::map<int, StepReport>;

  void take_clock(int member, const ClockReport& clock);
  std::int64_t run_time(int member, std::int64_t ns) const;
  bool finished(const Reports& reports) const;
  /// Start of the first rank, end of the last, in run time.
  std::pair<std::int64_t, std::int64_t> extent(const Reports& reports) const;
  /// On all ranks, in run time; none unless this generation has finished it.
  std::optional<std::int64_t> end_of_step(std::int64_t step) const;

  const ir::Program& program_;
  std::int64_t number_;
  std::vector<std::int32_t> members_;
  std::int64_t origin_ns_;
  std::int64_t rank0_minus_launcher_ = 0;
  std::vector<std::optional<ClockReport>> clocks_;
  std::vector<std::optional<MemberStatus>> statuses_;
  std::map<std::int64_t, Reports> steps_;
  std::int64_t given_ = -1;
  std::vector<Event> events_;
  std::size_t given_events_ = 0;  ///< Of events_.
  std::set<std::string> seen_;    ///< Keys of events: a message may come twice.
};

}  // namespace orrery::executor
