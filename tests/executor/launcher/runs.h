/// Runs of tiny models as real processes: the test program is its own rank process.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "models/ir/run_log.h"
#include "tests/executor/engine/training_plans.h"

namespace orrery::executor {

/// The tiny workload on one device, and as a pipeline of several.
ir::Program one_device();
ir::Program pipeline_of(int stages, ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b);

/// Settings with short limits. fp64, `steps` steps.
LaunchOptions launch_options(const ir::Program& program, int steps);

/// Launches, and expects that the run completes.
LaunchReport complete(const LaunchOptions& options, bool threads = false);

/// Launches in a process of its own, and kills that after the step. `before` runs just before.
void launch_and_kill(LaunchOptions options, std::int64_t step,
                     const std::function<void()>& before = {});

/// Collects what the run says from now on; outlives it.
void listen(LaunchOptions& options, std::string& said);

/// The first step that was done after generation 0; `none` if there is none.
std::int64_t first_repeated_step(const LaunchReport& report, std::int64_t none);

/// Losses by step, of the last generation that computed it.
std::vector<double> losses_of(const LaunchReport& report);

/// Losses of the same training in one process (threads).
std::vector<double> expected_losses(const ir::Program& program, int steps,
                                    Precision precision = Precision::fp64);

/// Largest relative difference; infinite if the lengths differ.
double worst_difference(const std::vector<double>& a, const std::vector<double>& b);

/// Devices 0, 1, ... of a plan become those of `devices`.
ir::Plan on_devices(ir::Plan plan, const std::vector<DeviceId>& devices);

bool has_event(const GenerationSummary& generation, const std::string& kind);

ir::RunLog read_log(const std::string& path);

/// Processes whose command line has this word.
std::vector<int> processes_with(const std::string& word);

/// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace orrery::executor
