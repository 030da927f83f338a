/// What ranks tell the launcher through the store, and under which keys. Structs travel as
/// executor/net/message.h says.
///
///   settings                     RunSettings
///   nodes                        names of the nodes, one a line
///   claim/<node>                 how many agents came with this name
///   refuse/<node>                what the node lacks, a line each; nothing is started then
///   rank                         subcommand that ranks are started with; absent: the agent's own
///   command/<n>                  to all ranks: "stop", "cancel <generation>"
///   spawn/<node>/<n>             to a node's agent: "start <device> <generation>",
///                                "kill <device>", "end"
///   neighbors/<node>             Neighbors
///   node/<node>                  the agent is there; its host's boot id
///   bye/<node>                   the agent has ended all its processes, as ordered
///   beat/<device>                a number that grows while the rank lives
///   exit/<device>/<n>            how a process ended
///   g/<g>/members                devices by member: the program's ranks, then helpers
///   g/<g>/program, g/<g>/until   what to run, up to which step
///   g/<g>/after                  the last step that all ranks had reported before
///   g/<g>/endpoint/<m>           where member m listens
///   g/<g>/state/<m>              StateReport
///   g/<g>/busy/<m>               a number that grows while member m reads or moves state
///   g/<g>/loaded/<m>             member m has its state
///   g/<g>/saved/<target>/<m>     steps whose checkpoints rank m keeps in a folder ("local",
///                                "cloud"), or "-": it writes none there
///   g/<g>/out/...                to the launcher: clock/<m>, step/<s>/<m>, status/<m>,
///                                event/<m>/<n>
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/engine/worker.h"
#include "executor/net/store.h"
#include "executor/net/transport.h"
#include "models/config/visitor.h"
#include "models/ir/run_log.h"

namespace orrery::executor {

/// One step of one rank, on its own clock. Travels as its message, a newline and a run log.
struct StepReport {
  std::int64_t step = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t peak_bytes = 0;
  std::vector<SampleLoss> losses;
  std::vector<ir::Span> spans;
  std::vector<ir::MemorySample> memory;
};
std::string to_text(const StepReport& report);
/// Throws std::runtime_error.
StepReport step_report_from(const std::string& text);

/// How a member's generation ended.
struct MemberStatus {
  enum class Kind {
    done,     ///< All steps that were asked for.
    lost,     ///< A TransportError: others may have failed.
    error,    ///< Something that another attempt would meet again.
    stopped,  ///< As the launcher ordered.
  };
  Kind kind = Kind::done;
  std::int64_t at_ns = 0;
  std::int64_t last_step = 0;  ///< Whose state it has.
  std::string message;
  std::vector<LinkTraffic> traffic;
};
std::vector<std::pair<MemberStatus::Kind, const char*>> enum_names(MemberStatus::Kind);
void describe(config::Visitor& v, MemberStatus& status);

/// A member's clock: what it showed when this was posted, and how far it is from rank 0's.
struct ClockReport {
  std::int64_t offset_ns = 0;
  std::int64_t uncertainty_ns = 0;
  std::int64_t posted_ns = 0;
  std::string boot;  ///< boot_id() of its machine.
};
void describe(config::Visitor& v, ClockReport& clock);

/// For the run log.
struct EventReport {
  std::int64_t at_ns = 0;
  std::string kind;
  std::string detail;
};
void describe(config::Visitor& v, EventReport& event);

/// Identifies this machine while it is up: equal ids share a monotonic clock.
std::string boot_id();

/// Posts to the store from a thread of its own, in order, so that training does not wait for it.
/// What a connection was given last when it broke is sent again on a new one, so that the launcher
/// may see a message twice.
class Reporter {
 public:
  Reporter(const Endpoint& store, const std::string& token);
  ~Reporter();
  void post(std::string key, std::string value);
  /// Returns when all that was posted is in the store, or it is gone.
  void drain();

 private:
  void run();
  /// False: the store is gone.
  bool send(const std::string& key, const std::string& value);

  Endpoint store_;
  std::string token_;
  std::optional<StoreClient> client_;  ///< Of the thread, which renews it.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, std::string>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  bool broken_ = false;
  std::thread thread_;
};

}  // namespace orrery::executor
