/// What all processes of a run must agree on. The launcher puts it into the store as text; rank
/// processes read it there. The run's token is not part of it: it travels by environment only.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/net/tcp_transport.h"

namespace orrery::executor {

/// Where in a step a fault strikes.
enum class FaultPoint : std::uint8_t {
  op,             ///< At the start of an op that is drawn from the fault's seed.
  before_update,  ///< Gradients are whole, the optimizer has not run.
  after_update,   ///< The optimizer has run, the step has not ended.
};

/// A fault that is asked for: the process of `device` kills itself (SIGKILL) in `step`; with `stop`
/// it stops itself (SIGSTOP); with `hold` it only waits so long there, or until its generation is
/// ended by the launcher. With `after` the fault waits until that device waits at its own hold.
struct FaultInjection {
  std::int32_t device = -1;
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  bool stop = false;
  FaultPoint point = FaultPoint::op;
  std::chrono::milliseconds hold{0};
  std::int32_t after = -1;
};

struct RunSettings {
  std::string run;  ///< Drawn for each run: tells checkpoints of different runs apart.
  std::string backend = "cpu";
  std::string library;  ///< Of the cpu back end: "eigen", "openblas", "" (the better one).
  std::string transport = "tcp";
  Precision precision = Precision::fp32;
  std::int64_t steps = 20;
  double learning_rate = 1e-3;
  std::string data;                   ///< Text file; empty: synthetic tokens.
  std::int64_t least_data_bytes = 0;  ///< That the file must have; set by launch().
  std::uint64_t data_seed = 0;
  /// Keeps the state before each update in host memory, so that survivors of a failure can go back
  /// to the same step. Costs each rank its optimizer states once more (fp32 Adam: 12 bytes for each
  /// parameter that it updates).
  bool elastic = false;
  std::int64_t checkpoint_every = 0;  ///< Steps; 0: never.
  std::string local_checkpoints;      ///< Folder on each node; empty: none.
  std::string cloud_checkpoints;      ///< Folder that all nodes see; empty: none.
  bool prune_checkpoints = false;     ///< Removes those of earlier runs from both folders.
  std::int64_t log_steps = 100;       ///< Spans and memory samples of the first so many steps.
  std::chrono::milliseconds connect{20'000};
  std::chrono::milliseconds deadline{60'000};
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds silence{10'000};
  std::vector<FaultInjection> faults;
  /// Compute ops of a device take so many times as long as they would: emulated slower devices.
  std::map<std::int32_t, double> slowdowns;

  TcpOptions transport_options(const std::string& token, std::uint32_t generation) const;
};

std::string to_text(const RunSettings& settings);
/// Throws std::runtime_error with what cannot be read.
RunSettings settings_from(const std::string& text);

const char* name_of(Precision precision);
std::optional<Precision> precision_of(const std::string& name);

/// A back end as the settings say for device `number` of the plan: processes share the GPUs of
/// their machine in turn. Throws std::runtime_error with the reason.
std::unique_ptr<Backend> make_backend(const RunSettings& settings, int number);

}  // namespace orrery::executor
