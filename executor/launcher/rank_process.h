/// A rank process: one device of a run. It reads what to do from the store, takes part in one
/// generation after the other, and ends when the launcher says so or the store is gone. Between
/// generations it keeps its state on the host.
///
/// Settings come by environment: ORRERY_STORE (host:port), ORRERY_TOKEN, ORRERY_DEVICE,
/// ORRERY_NODE, ORRERY_ADDRESS (to listen on), ORRERY_GENERATION (the first to look at). What CUDA
/// and NCCL need in the environment the process sets for itself (executor/cuda/rank_variables.h):
/// it alone counts the GPUs of its machine, where the agent and the launcher need none.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/net/socket.h"

namespace orrery::executor {

struct RankEnvironment {
  Endpoint store;
  std::string token;
  std::int32_t device = -1;
  std::string node;
  std::string address;
  std::int64_t generation = 0;
};

/// As NAME=VALUE, for a child's environment.
std::vector<std::string> to_environment(const RankEnvironment& environment);

/// The process's own; throws std::runtime_error with the variable that is missing.
RankEnvironment read_rank_environment();

/// "host:port"; throws std::runtime_error.
Endpoint endpoint_from(const std::string& text);

/// Exit status of a rank process that lost its launcher.
inline constexpr int kStoreLost = 3;

/// The whole process. Returns the exit status: 0 as ordered, 1 with the reason on standard error, 2
/// when the environment says nothing useful, kStoreLost.
int run_rank_process();

}  // namespace orrery::executor
