/// orrery calibrate: measures a machine by the executor's own passes, transports and checkpoints,
/// keeps every sample, and fits a profile.
#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "calibration/fit/fit.h"
#include "executor/netlab/namespaces.h"
#include "experiments/study/figure.h"
#include "models/spec/library.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/commands/calibrate_job.h"
#include "tools/commands/calibrate_report.h"
#include "tools/commands/calibrate_runner.h"
#include "tools/commands/calibrate_samples.h"
#include "tools/commands/inputs.h"
#include "tools/commands/interrupt.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// One line that says how far it is; estimates from the mean time of the cases so far.
class Progress {
 public:
  explicit Progress(bool quiet) : line_(quiet) {}

  void show(const CalibrateProgress& progress) {
    const std::lock_guard lock(mutex_);
    experiments::Progress view;
    view.noun = "measurements";
    view.total = static_cast<int>(progress.total);
    view.present = static_cast<int>(progress.present);
    view.done = static_cast<int>(progress.done - progress.present);
    view.elapsed_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (view.done > 0) {
      view.remaining_seconds =
          view.elapsed_seconds / view.done * static_cast<double>(progress.total - progress.done);
    }
    view.message = progress.now;
    line_.show(view);
  }

  void say(const std::string& text) {
    const std::lock_guard lock(mutex_);
    line_.clear();
    fmt::print(stderr, "orrery: {}\n", text);
  }

 private:
  std::mutex mutex_;  // The agents' thread may speak, too.
  Clock::time_point start_ = Clock::now();
  ProgressLine line_;
};

/// Before anything is measured. Nothing stands in for the emulated network: times over loopback are
/// not those of its links.
void check_lab() {
  const std::string why = executor::netlab_unavailable();
  if (why.empty()) return;
  config::Diagnostics diagnostics;
  diagnostics.add(at_flag("--netlab"), why,
                  "or name the cluster's machines with --hosts; without --netlab loopback is "
                  "measured, as link class 'loopback', and one core as type 'cpu'");
  diagnostics.raise();
}

/// False: interrupted.
bool measure(const CalibrateSettings& args, const CalibrateJob& job, const std::string& samples) {
  SampleStore store(samples, job.about);
  Progress progress(args.quiet || args.json);
  CalibrateHooks hooks;
  hooks.on_progress = [&](const CalibrateProgress& at) { progress.show(at); };
  hooks.on_message = [&](const std::string& text) { progress.say(text); };
  hooks.interrupted = &interrupted;
  try {
    take_cases(job, executor::list_cases(job.request), store, hooks);
    if (!args.quick && !args.only) store.set_sampling("");
  } catch (const executor::BenchInterrupted&) {
    progress.say(fmt::format("interrupted; {} samples are kept in {}",
                             store.set().measurements.size(), samples));
    return false;
  }
  return true;
}

/// Profile, tables and figures of the fits; returns the names of the files.
std::vector<std::string> write_fits(const CalibrateSettings& args,
                                    const calibration::FitReport& report, std::string& problem) {
  const fs::path out = args.out;
  std::vector<std::string> files;
  const auto write = [&](const char* name, const std::string& text) {
    files.push_back((out / name).string());
    write_file(files.back(), text);
  };
  write("profile.yaml", models::dump_profile(report.profile));
  write("entries.csv", entries_csv(report));
  write("fits.csv", calibration::points_csv(report));
  if (args.no_figure || report.entries.empty()) return files;
  const experiments::FigureResult figure = experiments::draw_figure(
      {(fs::path(ORRERY_SOURCE_DIR) / "calibration").string(), "plot_fits.py", ""}, files.back(),
      out.string(), &interrupted);
  files.insert(files.end(), figure.files.begin(), figure.files.end());
  problem = figure.problem;
  return files;
}

}  // namespace

void describe(config::Visitor& v, CalibrateSettings& settings) {
  v.optional("out", settings.out,
             "folder for samples.csv, profile.yaml, fits and figures; a second run goes on where "
             "the first one ended; default: results/calibration",
             {.letter = 'o'});
  v.optional("quick", settings.quick, "few sizes, few repetitions: to see that it works");
  v.optional("only", settings.only,
             "comma-separated kinds: block, gemm, memory_bandwidth, optimizer, memory, "
             "op_overhead, checkpoint_write, checkpoint_read, point_to_point, collective");
  v.optional("fit_only", settings.fit_only, "measure nothing, fit the samples that are there");
  v.optional("no_figure", settings.no_figure, "do not draw the fits");
  v.optional("quiet", settings.quiet, "no progress", {.letter = 'q'});
  describe_json(v, settings.json);
  v.section("What is measured");
  v.optional("backend", settings.backend, "cpu (default) or cuda");
  v.optional("library", settings.library, "of the cpu back end: eigen or openblas");
  v.optional("precision", settings.precision, "default: fp32, with cuda bf16");
  v.optional(
      "model", settings.model,
      "whose blocks are timed; default: experiments/executor/tiny_llama.yaml, with cuda llama_7b");
  v.optional("sequence_length", settings.sequence_length,
             "tokens per sample; default: 64, cuda 2048");
  v.optional(
      "cluster", settings.cluster,
      "whose GPU types, links and devices, with --netlab or --hosts; without them only as many "
      "processes on this machine as it has devices; default: processes on this machine");
  v.optional(
      "gpu_type", settings.gpu_type,
      "measure one device, not slowed down, under this name, not each GPU type of the cluster");
  v.optional("shares", settings.shares,
             "cuda: percent of the multiprocessors, for example 50,25: green contexts, as types of "
             "their own");
  v.optional("ranks", settings.ranks,
             "processes without a cluster; default: 2 for cpu, none for cuda");
  v.optional("checkpoints", settings.checkpoints, "folder for checkpoints; default: below --out");
  v.optional("cloud", settings.cloud,
             "folder for checkpoints that all nodes see; default: not measured");
  v.section("Machines");
  v.optional("hosts", settings.hosts,
             "a:4,b:8: device 0-3 on a, 4-11 on b; default: all on this machine");
  v.optional("ssh", settings.ssh, "start the agents of the hosts by ssh, instead of printing how");
  v.optional("netlab", settings.netlab,
             "emulate the cluster's nodes and network on this machine, for this run");
  v.optional("listen", settings.listen,
             "ADDRESS:PORT of the store; default: loopback, with --hosts all addresses, any port");
  v.optional("advertise", settings.advertise,
             "this machine's address for hosts; default: its name");
}

namespace {

int run(const CalibrateSettings& args) {
  const CalibrateJob job = make_calibrate_job(args, today());
  const std::string samples = (fs::path(args.out) / "samples.csv").string();
  signal(SIGINT, on_interrupt);
  signal(SIGTERM, on_interrupt);
  if (!args.fit_only) {
    if (job.lab) check_lab();
    if (!job.note.empty() && !args.quiet) fmt::print(stderr, "orrery: {}\n", job.note);
    if (!measure(args, job, samples)) return kInterrupted;
  }
  const ir::MeasurementSet measured = load_samples(samples);
  calibration::FitReport report = calibration::fit(measured, job.fit);
  if (!job.note.empty() && !args.fit_only) {
    report.warnings.insert(report.warnings.begin(), job.note);
  }
  std::string problem;
  const std::vector<std::string> files = write_fits(args, report, problem);
  print(args.json ? calibration_json(measured, report) : calibration_text(measured, report));
  if (!args.json) {
    print("\n" + samples + "\n");
    for (const std::string& file : files) print(file + "\n");
  }
  if (interrupted) {
    fmt::print(stderr, "orrery: interrupted; the profile is written, figures are not\n");
    return kInterrupted;
  }
  if (!problem.empty()) fmt::print(stderr, "orrery: no {}\n", problem);
  return 0;
}

}  // namespace

extern const Command kCalibrate;
const Command kCalibrate = printing_command<CalibrateSettings, run>(
    "calibrate", "Measure a machine and fit a profile of it",
    "calibrate --quick --only gemm,op_overhead --no-figure",
    "Exit code 130: interrupted; samples are kept.");

}  // namespace orrery::tools
