#include "experiments/study/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "experiments/study/files.h"

namespace orrery::experiments {
namespace {

/// A worker ends with its parent, and Ctrl-C on the terminal is the parent's business.
void become_worker(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it was gone before
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
}

/// Locks the file as long as a process writes to it; where files cannot be locked, does without.
void redirect_output(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
  flock(file, LOCK_EX | LOCK_NB);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  close(file);
}

}  // namespace

std::string run_worker(const std::string& folder, pid_t parent,
                       const std::function<RunSeconds()>& fill) {
  become_worker(parent);
  WorkerReport report;
  try {
    make_folders(folder);
    redirect_output(folder + "/" + kWorkerLog);
    report.seconds = fill();
  } catch (const std::system_error& error) {
    report.write_error = error.code().value();
    report.problem = error.what();
  } catch (const std::exception& error) {
    report.problem = error.what();
  }
  const nlohmann::json json = {{"write_error", report.write_error},
                               {"problem", report.problem},
                               {"planning_s", report.seconds.planning},
                               {"evaluation_s", report.seconds.evaluation}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

WorkerReport decode_report(const std::string& bytes) {
  const nlohmann::json json = nlohmann::json::parse(bytes);
  return {json["write_error"].get<int>(),
          json["problem"].get<std::string>(),
          {json["planning_s"].get<double>(), json["evaluation_s"].get<double>()}};
}

}  // namespace orrery::experiments
