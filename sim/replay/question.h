/// Keys of what the simulator is asked, for an AnswerStore. Private to sim/replay.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/base/bytes.h"
#include "models/interfaces/recovery_policy.h"
#include "models/interfaces/transfer_timer.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

void put(ByteWriter& out, const std::vector<models::StateTransfer>& transfers);
void put(ByteWriter& out, const models::DegradedLinks& links);
void put(ByteWriter& out, const std::vector<models::SlowDevice>& devices);
std::vector<models::StateTransfer> get_transfers(ByteReader& in);
models::DegradedLinks get_degraded_links(ByteReader& in);
std::vector<models::SlowDevice> get_slow_devices(ByteReader& in);

/// All that times of transfers depend on besides the transfers: cluster, profile (of its links),
/// SimGrid and its options.
std::string transfer_context(const models::Cluster& cluster, const ir::Profile& profile,
                             const std::vector<std::pair<std::string, std::string>>& simgrid);
/// And iterations besides plan and conditions.
std::string iteration_context(const std::string& transfers, const models::Workload& workload,
                              const models::Job& job, const IterationOptions& options);

}  // namespace orrery::sim
