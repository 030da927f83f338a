#include "experiments/study/figure.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "experiments/study/files.h"
#include "models/base/ids.h"
#include "models/base/subprocess.h"

namespace orrery::experiments {
namespace {

constexpr const char* kPython = "/usr/bin/python3";

struct Output {
  ExitStatus status;
  std::string out;
  std::string err;
  bool interrupted = false;  ///< It was ended.
};

/// Between looks at whether the script has ended or the user has had enough, and looks that a
/// script has to tidy up before it is ended all the same.
constexpr std::chrono::milliseconds kLookEvery{20};
constexpr int kMostLooks = 100;

/// A file in memory, which takes what a child says.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("output", MFD_CLOEXEC)) {
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int file() const { return file_; }
  std::string text() const {
    std::string text(::lseek(file_, 0, SEEK_END), '\0');
    const ssize_t count = ::pread(file_, text.data(), text.size(), 0);
    text.resize(count < 0 ? 0 : as_size(count));
    return text;
  }

 private:
  int file_;
};

Output run(const std::vector<std::string>& command, const std::atomic<bool>* interrupted) {
  const MemoryFile out, err;
  SubprocessOptions options;
  options.command = command;
  options.out = out.file();
  options.err = err.file();
  Subprocess child(options);
  Output output;
  std::optional<ExitStatus> ended;
  for (int looks = 0; !(ended = child.poll()); std::this_thread::sleep_for(kLookEvery)) {
    if (interrupted == nullptr || !*interrupted) continue;
    if (looks == 0) child.signal(SIGINT);
    if (++looks == kMostLooks) child.signal(SIGKILL);
    output.interrupted = true;
  }
  output.status = *ended;
  output.out = out.text();
  output.err = err.text();
  return output;
}

std::string explain(const Output& output) {
  if (output.status.code == kCannotStart) {
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
  if (!output.status.ok()) {
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
