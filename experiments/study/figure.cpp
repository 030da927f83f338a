#include "experiments/study/figure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "experiments/study/files.h"

namespace orrery::experiments {
namespace {

constexpr const char* kPython = "/usr/bin/python3";

struct Output {
  int status = 0;  ///< As of wait().
  std::string out;
  std::string err;
  bool interrupted = false;  ///< It was ended.
};

/// Milliseconds between looks at whether the user has had enough, and looks that a script has to
/// tidy up before it is ended all the same.
constexpr int kLookEvery = 50;
constexpr int kMostLooks = 40;

/// Reads both pipes to their ends; ends `child` when interrupted.
void drain(int out_pipe, int err_pipe, pid_t child, const std::atomic<bool>* interrupted,
           Output& output) {
  pollfd pipes[2] = {{out_pipe, POLLIN, 0}, {err_pipe, POLLIN, 0}};
  std::string* texts[2] = {&output.out, &output.err};
  char buffer[1 << 12];
  int looks = 0;  // Since the interruption.
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    const int ready = poll(pipes, 2, interrupted == nullptr ? -1 : kLookEvery);
    if (ready < 0 && errno != EINTR) return;
    if (interrupted != nullptr && *interrupted) {
      if (looks == 0) kill(child, SIGINT);
      if (++looks == kMostLooks) kill(child, SIGKILL);
      output.interrupted = true;
    }
    if (ready <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      const ssize_t count = read(pipes[i].fd, buffer, sizeof buffer);
      if (count > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        pipes[i].fd = -1;
      }
    }
  }
}

Output run(const std::vector<std::string>& command, const std::atomic<bool>* interrupted) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Output output;
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return {kCannotStart << 8, "", std::strerror(errno), false};
  if (pipe2(err, O_CLOEXEC) != 0) {
    const int code = errno;
    close(out[0]);
    close(out[1]);
    return {kCannotStart << 8, "", std::strerror(code), false};
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(kCannotStart);
  }
  const int fork_error = errno;
  close(out[1]);
  close(err[1]);
  if (child < 0) {
    output = {kCannotStart << 8, "", std::strerror(fork_error), false};
  } else {
    drain(out[0], err[0], child, interrupted, output);
    while (waitpid(child, &output.status, 0) < 0 && errno == EINTR) {
    }
  }
  close(out[0]);
  close(err[0]);
  return output;
}

std::string explain(const Output& output) {
  if (WIFEXITED(output.status) && WEXITSTATUS(output.status) == kCannotStart) {
    return fmt::format("cannot start {} {}(install python3)", kPython, output.err);
  }
  const std::size_t missing = output.err.find("No module named '");
  if (missing != std::string::npos) {
    const std::size_t begin = missing + std::strlen("No module named '");
    const std::string module = output.err.substr(begin, output.err.find('\'', begin) - begin);
    return fmt::format("Python has no module '{0}' (apt install python3-{0})", module);
  }
  return "the plot script failed:\n" + output.err;
}

}  // namespace

FigureResult draw_figure(const FigureScript& script, const std::string& runs_csv,
                         const std::string& out_folder, const std::atomic<bool>* interrupted) {
  const std::filesystem::path folder = script.folder;
  make_folders(out_folder);
  std::vector<std::string> command = {kPython, (folder / script.plot).string(), "--runs", runs_csv};
  if (!script.published.empty()) {
    command.insert(command.end(), {"--published", (folder / script.published).string()});
  }
  command.insert(command.end(), {"--out", out_folder});
  const Output output = run(command, interrupted);
  FigureResult result;
  if (output.interrupted) {
    result.problem = "figure: interrupted";
    return result;
  }
  if (output.status != 0) {
    result.problem = "figure: " + explain(output);
    return result;
  }
  for (std::size_t begin = 0; begin < output.out.size();) {
    const std::size_t end = std::min(output.out.find('\n', begin), output.out.size());
    if (end > begin) result.files.push_back(output.out.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

}  // namespace orrery::experiments
