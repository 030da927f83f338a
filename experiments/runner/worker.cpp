#include "experiments/runner/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "experiments/runner/files.h"
#include "models/ir/perfetto.h"
#include "models/spec/library.h"

namespace orrery::experiments {
namespace {

using Json = nlohmann::json;

/// A worker ends with its parent, and Ctrl-C on the terminal is the parent's business.
void become_worker(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it was gone before
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
}

void redirect_output(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  close(file);
}

std::string timeline(const models::Cluster& cluster, const RunOutcome& outcome) {
  const ir::TimelineNames names{
      [&](DeviceId id) { return fmt::format("GPU {} {}", id.value, cluster.gpu(id).name); },
      [&](DeviceId id) { return cluster.device(id).node; },
      [&](NodeId id) { return cluster.node(id).name; }};
  std::ostringstream out;
  ir::write_perfetto(outcome.program, outcome.log, names, out);
  return std::move(out).str();
}

WorkerReport fill_folder(const WorkerTask& task, const models::Library& library) {
  make_folders(task.folder);
  const std::string log_file = task.folder + "/log.txt";
  redirect_output(log_file);
  config::Diagnostics diagnostics;
  LoadedRun loaded = load_run(task.run.spec, task.base_folder, library, diagnostics);
  diagnostics.raise();
  Session session(std::move(loaded));
  const RunOutcome outcome = session.execute(task.timeline, nullptr);
  write_text_file(task.folder + "/effective.yaml",
                  effective_config(task.run.spec, task.identity, outcome));
  if (outcome.plan) {
    write_text_file(task.folder + "/plan.yaml", models::dump_plan(*outcome.plan));
  }
  std::string entries;
  for (const std::string& line : outcome.profile_entries) entries += line + "\n";
  write_text_file(task.folder + "/profile_entries.txt", entries);
  if (task.timeline && !outcome.log.spans.empty()) {
    write_text_file(task.folder + "/timeline.perfetto",
                    timeline(session.loaded().cluster, outcome));
  }
  std::fflush(nullptr);
  append_text_file(log_file, log_text(outcome));
  write_text_file(task.folder + "/summary.json", summary_json(task.identity, outcome));
  return {0, "", outcome.planning_seconds, outcome.evaluation_seconds};
}

}  // namespace

std::string run_worker(const WorkerTask& task, const models::Library& library) {
  become_worker(task.parent);
  WorkerReport report;
  try {
    report = fill_folder(task, library);
  } catch (const std::system_error& error) {
    report.write_error = error.code().value();
    report.problem = error.what();
  } catch (const std::exception& error) {
    report.problem = error.what();
  }
  const Json json = {{"write_error", report.write_error},
                     {"problem", report.problem},
                     {"planning_s", report.planning_seconds},
                     {"evaluation_s", report.evaluation_seconds}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WorkerReport decode_report(const std::string& bytes) {
  const Json json = Json::parse(bytes);
  return {json["write_error"].get<int>(), json["problem"].get<std::string>(),
          json["planning_s"].get<double>(), json["evaluation_s"].get<double>()};
}

}  // namespace orrery::experiments
