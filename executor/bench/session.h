/// The driver of micro-benchmarks that need processes: brings one up for each device, on this
/// machine or on named hosts, and has them take cases one after the other. Agents, store and
/// process table are the launcher's.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/bench/bench_rank.h"
#include "executor/bench/compute_bench.h"
#include "executor/launcher/launcher.h"
#include "executor/launcher/settings.h"

namespace orrery::executor {

struct BenchSessionOptions {
  RunSettings settings;  ///< Back end, precision, library; folders of checkpoints; deadlines.
  BenchModel model;
  SamplingRule rule;
  std::vector<DeviceId> devices;  ///< That take part, ascending.
  /// As in LaunchOptions.
  std::vector<HostSlots> hosts;
  std::string listen;
  std::string advertise;
  int port = 0;
  std::string executable;
  bool ssh = false;
  std::chrono::milliseconds agents_wait{600'000};
  std::chrono::milliseconds started_wait{60'000};
  std::function<void(const std::string&)> on_message;
  const std::atomic<bool>* interrupted = nullptr;
};

class BenchSession {
 public:
  /// Returns when all processes have joined. Throws std::runtime_error (TransportError among it)
  /// with what went wrong, and BenchInterrupted; nothing is left running then.
  explicit BenchSession(BenchSessionOptions options);
  ~BenchSession();

  /// Has the case's devices take it; new samples go to `sample` as they come. Throws
  /// std::runtime_error when a process ends or does not answer, and BenchInterrupted.
  void run(const BenchCase& one, const std::vector<ir::Measurement>& before,
           const std::function<void(const ir::Measurement&)>& sample);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::executor
