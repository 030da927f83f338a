#include "executor/netlab/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "executor/net/socket.h"
#include "executor/netlab/error.h"
#include "executor/netlab/tap.h"
#include "models/base/subprocess.h"

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "/var/run/netns";

std::string path_of(const std::string& name) { return fmt::format("{}/{}", kFolder, name); }

/// The folder is a mount point that other mount namespaces see changes of, as ip-netns(8) keeps it.
void prepare_folder() {
  std::error_code error;
  fs::create_directories(kFolder, error);
  if (error) throw_netlab(fmt::format("create {}", kFolder), error.value());
  if (mount("none", kFolder, "none", MS_SHARED | MS_REC, nullptr) == 0) return;
  if (errno != EINVAL) throw_netlab(fmt::format("share the mounts of {}", kFolder), errno);
  if (mount(kFolder, kFolder, "none", MS_BIND | MS_REC, nullptr) != 0 ||
      mount("none", kFolder, "none", MS_SHARED | MS_REC, nullptr) != 0) {
    throw_netlab(fmt::format("share the mounts of {}", kFolder), errno);
  }
}

/// Runs the function in a child process, which ends with its errno.
int in_child(std::function<int()> function) {
  SubprocessOptions child;
  child.body = std::move(function);
  try {
    const ExitStatus status = Subprocess(child).wait();
    return status.signal == 0 ? status.code : EINTR;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

enum class Probe : int { fine, network_namespace, mount_namespace, device, interface };

}  // namespace

void throw_netlab(const std::string& what, int error) {
  throw NetlabError(fmt::format("cannot {}: {}", what, std::strerror(error)));
}

std::string netlab_unavailable() {
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return "cannot open a pipe";
  const Socket read_end(pipe_ends[0]);
  Socket write_end(pipe_ends[1]);
  in_child([&] {
    Probe step = Probe::network_namespace;
    int error = 0;
    if (unshare(CLONE_NEWNET) != 0) {
      error = errno;
    } else if (step = Probe::mount_namespace;
               unshare(CLONE_NEWNS) != 0 ||
               mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      error = errno;
    } else {
      step = Probe::device;
      const int device = open(kTunDevice, O_RDWR | O_CLOEXEC);
      if (device < 0) {
        error = errno;
      } else {
        step = Probe::interface;
        error = attach_tap(device, kNetlabDevice);
      }
    }
    const std::array<int, 2> answer{static_cast<int>(error == 0 ? Probe::fine : step), error};
    return write(write_end.fd(), answer.data(), sizeof answer) == sizeof answer ? 0 : EIO;
  });
  write_end.close();
  std::array<int, 2> answer{};
  if (read(read_end.fd(), answer.data(), sizeof answer) != sizeof answer) {
    return "the process that tries network namespaces died";
  }
  const char* why = std::strerror(answer[1]);
  switch (static_cast<Probe>(answer[0])) {
    case Probe::fine:
      return "";
    case Probe::network_namespace:
      return fmt::format(
          "network namespaces are not permitted here: {} (run as root, or inside `unshare --user "
          "--map-root-user --net --mount`)",
          why);
    case Probe::mount_namespace:
      return fmt::format("mounts, which give namespaces their names, are not permitted here: {}",
                         why);
    case Probe::device:
      return fmt::format("cannot open {}: {} (it takes root, or access rights 0666)", kTunDevice,
                         why);
    case Probe::interface:
      return fmt::format("TAP devices are not permitted here: {}", why);
  }
  return "";
}

void create_namespace(const std::string& name) {
  prepare_folder();
  const std::string path = path_of(name);
  const int fd = open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
  if (fd < 0) throw_netlab(fmt::format("create the namespace {}", name), errno);
  close(fd);
  const int error = in_child([&] {
    if (unshare(CLONE_NEWNET) != 0) return errno;
    return mount("/proc/self/ns/net", path.c_str(), "none", MS_BIND, nullptr) == 0 ? 0 : errno;
  });
  if (error == 0) return;
  unlink(path.c_str());
  throw_netlab(fmt::format("create the namespace {}", name), error);
}

bool remove_namespace(const std::string& name) {
  const std::string path = path_of(name);
  // EINVAL: nothing is mounted on it, which a crash may leave.
  if (umount2(path.c_str(), MNT_DETACH) != 0 && errno != EINVAL && errno != ENOENT) {
    throw_netlab(fmt::format("remove the namespace {}", name), errno);
  }
  if (unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  throw_netlab(fmt::format("remove the namespace {}", name), errno);
}

bool namespace_exists(const std::string& name) { return access(path_of(name).c_str(), F_OK) == 0; }

void enter_namespace(const std::string& name) {
  const Socket file(open(path_of(name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open() || setns(file.fd(), CLONE_NEWNET) != 0) {
    throw_netlab(fmt::format("enter the namespace {}", name), errno);
  }
}

std::vector<int> processes_in(const std::string& name) {
  struct stat wanted {};
  std::vector<int> found;
  if (stat(path_of(name).c_str(), &wanted) != 0) return found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string number = entry.path().filename();
    int pid = 0;
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), pid);
    if (problem != std::errc() || end != number.data() + number.size()) continue;
    struct stat own {};
    if (stat(fmt::format("/proc/{}/ns/net", pid).c_str(), &own) != 0) continue;
    if (own.st_ino == wanted.st_ino && own.st_dev == wanted.st_dev) found.push_back(pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace orrery::executor
