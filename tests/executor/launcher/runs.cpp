#include "tests/executor/launcher/runs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "models/base/file.h"
#include "models/base/subprocess.h"
#include "models/ir/wire.h"

namespace orrery::executor {

ir::Program one_device() {
  const models::Workload workload = tiny_workload();
  return lower_for_executor(single_device_plan(workload, 2), workload);
}

ir::Program pipeline_of(int stages, ir::ScheduleKind schedule) {
  const models::Workload workload = tiny_workload();
  return lower_for_executor(pipeline_plan(workload, stages, schedule), workload);
}

LaunchOptions launch_options(const ir::Program& program, int steps) {
  using std::chrono::milliseconds;
  LaunchOptions options;
  options.first = {program, "first"};
  options.settings.precision = Precision::fp64;
  options.settings.steps = steps;
  options.settings.data_seed = 11;  // As train() of training_plans.h.
  options.settings.connect = milliseconds(60'000);
  options.settings.deadline = milliseconds(60'000);
  options.settings.heartbeat = milliseconds(100);
  options.settings.silence = milliseconds(10'000);
  for (int d = 0; d < 8; ++d) options.devices.push_back({d});
  return options;
}

LaunchReport complete(const LaunchOptions& options, bool threads) {
  LaunchReport report = threads ? launch_on_threads(options) : launch(options);
  EXPECT_EQ(report.result, LaunchReport::Result::completed) << report.problem;
  return report;
}

void launch_and_kill(LaunchOptions options, std::int64_t step,
                     const std::function<void()>& before) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  SubprocessOptions child;
  child.body = [&] {
    options.on_step = [&](const StepLine& line) {
      if (line.step == step) [[maybe_unused]]
        const ssize_t n = ::write(ready[1], "x", 1);
    };
    launch(options);
    return 0;
  };
  const Subprocess launcher(child);
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  if (before) before();
}

void listen(LaunchOptions& options, std::string& said) {
  options.on_message = [&said](const std::string& line) { said += line + "\n"; };
}

std::int64_t first_repeated_step(const LaunchReport& report, std::int64_t none) {
  std::int64_t first = none;
  for (const StepLine& line : report.steps) {
    if (line.generation > 0) first = std::min(first, line.step);
  }
  return first;
}

ir::RunLog read_log(const std::string& path) {
  std::string bytes;
  EXPECT_EQ(read_file(path, bytes), std::nullopt);
  auto log = ir::parse_run_log(bytes);
  EXPECT_TRUE(std::holds_alternative<ir::RunLog>(log)) << path;
  return std::get<ir::RunLog>(log);
}

std::vector<double> losses_of(const LaunchReport& report) {
  std::map<std::int64_t, double> by_step;
  for (const StepLine& line : report.steps) by_step[line.step] = line.loss;
  std::vector<double> out;
  for (const auto& [step, loss] : by_step) out.push_back(loss);
  return out;
}

std::vector<double> expected_losses(const ir::Program& program, int steps, Precision precision) {
  TrainingOptions options;
  options.steps = steps;
  options.precision = precision;
  return train(program, options).losses;
}

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] / b[i] - 1));
  return worst;
}

std::vector<int> processes_with(const std::string& word) {
  std::vector<int> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find(word) != std::string::npos) out.push_back(std::stoi(name));
  }
  return out;
}

ir::Plan on_devices(ir::Plan plan, const std::vector<DeviceId>& devices) {
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = devices[device.index()];
        }
      }
    }
  }
  return plan;
}

bool has_event(const GenerationSummary& generation, const std::string& kind) {
  for (const ir::LogEvent& event : generation.events) {
    if (event.kind == kind) return true;
  }
  return false;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "orrery-launch-XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace orrery::executor
