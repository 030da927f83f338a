/// What all processes of a run must agree on. The launcher puts it into the store; ranks read it
/// there. The run's token is not part of it: it travels by environment only.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/engine/data.h"
#include "executor/engine/worker.h"
#include "executor/net/tcp_transport.h"
#include "models/config/visitor.h"
#include "models/ir/program.h"

namespace orrery::executor {

std::vector<std::pair<Precision, const char*>> enum_names(Precision);
const char* name_of(Precision precision);
std::optional<Precision> precision_of(const std::string& name);

/// Where in a step a fault strikes.
enum class FaultPoint : std::uint8_t {
  op,             ///< At the start of an op that is drawn from the fault's seed.
  before_update,  ///< Gradients are whole, the optimizer has not run.
  after_update,   ///< The optimizer has run, the step has not ended.
};
std::vector<std::pair<FaultPoint, const char*>> enum_names(FaultPoint);

/// A requested fault: the process of `device` kills itself (SIGKILL) in `step`; with `stop` it
/// stops itself (SIGSTOP); with `hold` it only waits there, for that long or until the launcher
/// ends its generation. With `after` the fault waits until that device waits at its own hold.
struct FaultInjection {
  std::int32_t device = -1;
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  bool stop = false;
  FaultPoint point = FaultPoint::op;
  std::chrono::milliseconds hold{0};
  std::int32_t after = -1;
};
void describe(config::Visitor& v, FaultInjection& fault);

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
  std::int64_t log_steps = 100;       ///< Spans and memory samples of this many first steps.
  std::chrono::milliseconds connect{20'000};
  std::chrono::milliseconds deadline{60'000};
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds silence{10'000};
  std::vector<FaultInjection> faults;
  /// Emulated slower devices: factors by which their compute ops take longer.
  std::map<std::int32_t, double> slowdowns;

  TcpOptions transport_options(const std::string& token, std::uint32_t generation) const;
  /// For the worker of this device: learning rate and slowdown.
  WorkerOptions worker_options(std::int32_t device) const;
};
void describe(config::Visitor& v, RunSettings& settings);

/// A back end as the settings say for device `number` of the plan: processes share the GPUs of
/// their machine in turn. Throws std::runtime_error with the reason.
std::unique_ptr<Backend> make_backend(const RunSettings& settings, int number);

/// The tokens that the settings name: those of a text file, or synthetic ones. Throws
/// std::runtime_error with what is wrong with the file.
std::unique_ptr<TokenSource> make_tokens(const RunSettings& settings,
                                         const ir::ProgramHeader& header);

}  // namespace orrery::executor
