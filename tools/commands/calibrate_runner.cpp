#include "tools/commands/calibrate_runner.h"

#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "executor/bench/compute_bench.h"
#include "executor/bench/storage_bench.h"
#include "executor/cuda/backend.h"
#include "executor/netlab/namespaces.h"
#include "models/ir/measurement_text.h"
#include "models/ir/names.h"
#include "tools/commands/execute_netlab.h"

namespace orrery::tools {
namespace {

using executor::BenchCase;
using ir::Measurement;
using ir::MeasurementKind;

bool between_ranks(const BenchCase& one) {
  return one.key.kind == MeasurementKind::point_to_point ||
         one.key.kind == MeasurementKind::collective;
}

bool to_disk(const BenchCase& one) {
  return one.key.kind == MeasurementKind::checkpoint_write ||
         one.key.kind == MeasurementKind::checkpoint_read;
}

class CaseRunner {
 public:
  CaseRunner(const CalibrateJob& job, const std::vector<BenchCase>& cases,
             const CalibrateHooks& hooks)
      : job_(job), hooks_(hooks) {
    std::set<DeviceId> devices;
    for (const BenchCase& one : cases) {
      if (!is_local(one)) devices.insert(one.devices.begin(), one.devices.end());
    }
    devices_.assign(devices.begin(), devices.end());
  }

  void run(const BenchCase& one, const std::vector<Measurement>& before,
           const std::function<void(const Measurement&)>& sample) {
    if (!is_local(one)) return session().run(one, before, sample);
    executor::BenchSink sink;
    sink.sample = sample;
    sink.check = [this] { check(); };
    if (to_disk(one)) {
      const bool cloud = one.key.location == ir::Location::cloud;
      return executor::time_checkpoint(
          one, cloud ? job_.settings.cloud_checkpoints : job_.settings.local_checkpoints, job_.rule,
          before, executor::system_bench_clock(), sink);
    }
    compute(one.key.device_type).run(one, job_.rule, before, sink);
  }

 private:
  bool is_local(const BenchCase& one) const {
    return job_.where.hosts.empty() && !between_ranks(one);
  }

  void check() const {
    if (hooks_.interrupted != nullptr && *hooks_.interrupted) throw executor::BenchInterrupted();
  }

  /// One device at a time is in memory: the whole one, or a part of a GPU.
  executor::ComputeBench& compute(const std::string& type) {
    const auto part = job_.multiprocessors.find(type);
    const std::string name = part == job_.multiprocessors.end() ? std::string() : type;
    if (bench_ != nullptr && name == name_) return *bench_;
    bench_.reset();
    backend_.reset();
    if (part == job_.multiprocessors.end()) {
      backend_ = executor::make_backend(job_.settings, 0);
    } else {
      backend_ = std::move(
          executor::make_green_backends(job_.settings.precision, 0, {part->second}).front());
    }
    bench_ = std::make_unique<executor::ComputeBench>(*backend_, job_.request.model,
                                                      executor::system_bench_clock());
    name_ = name;
    return *bench_;
  }

  executor::BenchSession& session() {
    if (session_ != nullptr) return *session_;
    // What was computed here is not needed any more, and ranks may need the memory.
    bench_.reset();
    backend_.reset();
    executor::BenchSessionOptions options;
    options.settings = job_.settings;
    options.model = job_.request.model;
    options.rule = job_.rule;
    options.devices = devices_;
    options.hosts = job_.where.hosts;
    options.listen = job_.where.listen;
    options.port = job_.where.port;
    options.advertise = job_.where.advertise;
    options.ssh = job_.where.ssh;
    options.on_message = hooks_.on_message;
    options.interrupted = hooks_.interrupted;
    if (job_.lab) {
      lab_ = std::make_unique<ExecuteLab>(*job_.lab, hooks_.on_message);
      options.hosts = lab_->hosts();
      options.listen = executor::netlab_address(0);
      // This thread enters it, and with it those that it starts from now on.
      executor::enter_namespace(executor::namespace_name(*job_.lab, 0));
    }
    session_ = std::make_unique<executor::BenchSession>(std::move(options));
    return *session_;
  }

  const CalibrateJob& job_;
  const CalibrateHooks& hooks_;
  std::vector<DeviceId> devices_;  ///< Of the session.
  std::unique_ptr<executor::Backend> backend_;
  std::unique_ptr<executor::ComputeBench> bench_;
  std::string name_;
  std::unique_ptr<ExecuteLab> lab_;  ///< Outlives the session.
  std::unique_ptr<executor::BenchSession> session_;
};

/// Nothing is left to do, so that no process need be started.
bool complete(const BenchCase& one, const executor::SamplingRule& rule,
              const std::vector<Measurement>& before) {
  if (one.key.kind == MeasurementKind::memory) return !before.empty();
  return executor::Sampler(rule, before).done();
}

void take_all(const CalibrateJob& job, const std::vector<BenchCase>& cases, SampleStore& store,
              const CalibrateHooks& hooks) {
  std::vector<BenchCase> missing;
  for (const BenchCase& one : cases) {
    if (!complete(one, job.rule, store.of(one.key))) missing.push_back(one);
  }
  CalibrateProgress progress{cases.size() - missing.size(), cases.size(),
                             cases.size() - missing.size(), ""};
  CaseRunner runner(job, missing, hooks);
  for (const BenchCase& one : missing) {
    if (hooks.interrupted != nullptr && *hooks.interrupted) throw executor::BenchInterrupted();
    progress.now = ir::name_of(one.key.kind);
    if (hooks.on_progress) hooks.on_progress(progress);
    runner.run(one, store.of(one.key), [&](const Measurement& sample) { store.add(sample); });
    ++progress.done;
  }
  if (hooks.on_progress) hooks.on_progress(progress);
}

}  // namespace

void take_cases(const CalibrateJob& job, const std::vector<BenchCase>& cases, SampleStore& store,
                const CalibrateHooks& hooks) {
  std::exception_ptr error;
  // A thread of its own, which may enter a network namespace.
  std::thread([&] {
    try {
      take_all(job, cases, store, hooks);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

}  // namespace orrery::tools
