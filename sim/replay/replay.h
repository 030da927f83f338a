/// Replay: strings iterations and recoveries along a trace and accounts for every nanosecond once.
///
/// The job trains with the policy's plan; finished iterations are skipped in one step until the
/// next event. At events the policy returns a decision, whose phases and transfers follow one
/// another; an event in the middle of them stops them where they are, and the policy is asked
/// again. Devices that join during a recovery and are not used at its end are reported to the
/// policy again then. Checkpoints are taken as the policy's levels say. What survives an event: GPU
/// memory is lost with its device, host memory and NVMe with their node, all GPU memory when the
/// job itself fails; the cloud never loses anything. A node is down when none of its devices lives.
///
/// - What ends at the instant of an event has ended before it. Events at instant 0 make the initial
///   state, for which the policy is asked for its first plan (then told of notices and of what is
///   slow); events at or after the horizon do not happen.
/// - Events at one instant are one batch; an event that brings back a node from which something
/// died
///   at that instant starts a batch of its own.
/// - A checkpoint that is being persisted is lost when a working device of its plan dies, a node
///   that stores a shard goes down, or the job fails. The two newest of each level are kept; those
///   after the iteration that training resumes from are dropped.
/// - `proceed` during a recovery lets it go on, which needs its plan's devices and the peers that
/// it
///   still reads from to live; while the job waits it goes on waiting. It leaves a pending switch
///   as it is, unless something that the switch needs has died.
/// - When a device or a link changes its speed under a plan that proceeds, what is left of the
///   iteration in flight takes the new time.
/// - Background transfers slow training unless `background_transfers` is false; recoveries, the
///   transfers themselves and the times that policies are told ignore them.
/// - An iteration that the horizon cuts off is accounted as productive and degraded, but not
/// counted.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/time.h"
#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "models/interfaces/transfer_timer.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "sim/replay/iteration_timer.h"
#include "traces/trace.h"

namespace orrery::sim {

/// Where wall time goes. They add up to the horizon.
enum class Bucket : std::uint8_t {
  productive,   ///< Iterations that count, as long as ReplayResult::reference at most.
  degraded,     ///< What they take longer: fewer, slower or rerouted devices.
  rolled_back,  ///< Iterations whose result was lost, and parts of iterations.
  checkpoint,
  detect,
  decide,
  move_state,
  reinitialize,
  idle,  ///< Waiting for devices.
};
inline constexpr std::size_t kBuckets = 9;
const char* name_of(Bucket bucket);
std::vector<std::pair<Bucket, const char*>> enum_names(Bucket);

/// A device is absent, in the running plan, or a spare that is there and does nothing.
/// GPU-hours of the plan's devices are in the bucket of the wall time; those of spares, and of all
/// devices while the job has no plan, in `spare`.
struct DeviceHours {
  std::array<double, kBuckets> in_plan{};
  double spare = 0;
  double absent = 0;
};

struct ReplayOptions {
  Nanoseconds horizon;  ///< 0: the trace's.
  /// `decide` phases take what on_events() took: not reproducible.
  bool measured_planning = false;
  bool spot_prices = false;  ///< Bill spot prices where the trace names none.
  bool record_spans = false;
  /// The background transfers of checkpoints (CheckpointLevel::background) slow iterations: their
  /// bytes are spread evenly over the whole iterations that they take.
  bool background_transfers = true;
};

/// A stretch of wall time in one bucket, for timelines. Iterations come in runs.
struct ReplaySpan {
  Bucket bucket = Bucket::productive;
  Instant start;
  Instant end;
  std::int64_t first_iteration = 0;  ///< Of productive, degraded and rolled back spans.
  std::int64_t iterations = 0;
  std::string what;  ///< Cause, phase, reason.
};

struct InterruptionRecord {
  Instant at;
  std::string cause;
  std::string reason;            ///< The decision's.
  std::int64_t rolled_back = 0;  ///< Iterations.
  Nanoseconds stall;             ///< Until training went on; so far, if it never did.
};

/// A point of the curves over time: at each change of plan, and at the end.
struct ReplayPoint {
  Instant at;
  std::int64_t iterations = 0;  ///< That count so far, later roll-backs included.
  int live = 0;
  int in_plan = 0;
  double samples_per_second = 0;  ///< Of the plan that runs from here; 0 in a stall.
};

struct ReplayResult {
  Nanoseconds horizon;
  std::array<Nanoseconds, kBuckets> wall{};
  /// Of productive and degraded time: what transfers beside training added to iterations that
  /// count.
  Nanoseconds background;
  DeviceHours device_hours;
  std::int64_t iterations = 0;  ///< That count.
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  /// Iteration of the fastest plan of this replay: of those that trained, on the devices as they
  /// were then, and of the first one with all its devices healthy.
  Seconds reference;
  double ettr = 0;      ///< (productive + degraded) / horizon.
  double goodput = 0;   ///< samples / (horizon at the reference rate); at most 1.
  Dollars dollars;      ///< All live devices, in the plan or not.
  bool priced = false;  ///< False when a GPU type has no price.
  std::int64_t events = 0;
  std::int64_t interruptions = 0;  ///< Events that stopped training.
  std::int64_t decisions = 0;
  std::vector<InterruptionRecord> log;
  std::vector<ReplayPoint> points;
  std::vector<ReplaySpan> spans;   ///< If recorded; they cover the horizon without a gap.
  std::string first_plan_problem;  ///< Why the job could not start at once; else empty.
};

struct ReplayInput {
  const models::Cluster& cluster;
  const models::Job& job;
  /// Its nodes are the cluster's, one to one (traces/bind.h).
  const traces::Trace& trace;
  const models::RecoveryPolicy& policy;
  const IterationTimer& iterations;
  const models::TransferTimer& transfers;
};

/// Deterministic in its arguments unless measured_planning. `on_progress` is called now and then
/// with the instant that was reached. Aborts if a decision breaks the contract of RecoveryDecision.
ReplayResult replay(const ReplayInput& input, const ReplayOptions& options,
                    const std::function<void(Instant)>& on_progress = {});

}  // namespace orrery::sim
