/// Runs of tiny models as real processes: the test program is its own rank process.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "tests/executor/engine/training_plans.h"

namespace orrery::executor {

/// Settings with short limits. fp64, `steps` steps.
LaunchOptions launch_options(const ir::Program& program, int steps);

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
