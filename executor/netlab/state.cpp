#include "executor/netlab/state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "executor/netlab/error.h"
#include "models/base/file.h"
#include "models/config/document.h"

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateEnding = ".lab";
constexpr mode_t kOwnerOnly = 0700;

/// A folder of this user's alone: others must not be able to give a lab another switch.
bool is_ours(const std::string& folder) {
  struct stat info {};
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string netlab_writable_folder(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    mkdir(folder.c_str(), kOwnerOnly);
    if (is_ours(folder) && access(folder.c_str(), W_OK) == 0) return folder;
  }
  throw NetlabError(fmt::format("no folder for the state of labs: {}", fmt::join(folders, ", ")));
}

std::string netlab_state_path(const std::string& folder, const std::string& name) {
  return fmt::format("{}/{}{}", folder, name, kStateEnding);
}

std::string netlab_counters_path(const std::string& state) {
  return fs::path(state).replace_extension(".counters").string();
}

std::optional<std::string> find_netlab_state(const std::string& name,
                                             const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = netlab_state_path(folder, name);
    if (is_ours(folder) && access(path.c_str(), F_OK) == 0) return path;
  }
  return std::nullopt;
}

void describe(config::Visitor& v, NetlabState& state) {
  v.schema("orrery/netlab-state", 2);
  v.required("switch_pid", state.switch_process.pid, "0: none");
  v.required("switch_start_tick", state.switch_process.start_tick, "of the switch");
  v.required("lab", state.spec, "what it is");
}

std::optional<NetlabState> read_netlab_state(const std::string& path) {
  config::Diagnostics problems;
  auto state = config::load_file<NetlabState>(path, problems);
  return problems.empty() ? std::optional(std::move(state)) : std::nullopt;
}

void write_netlab_state(const std::string& path, const NetlabState& state) {
  if (const auto problem = write_file_atomically(path, config::dump(state))) {
    throw NetlabError(*problem);
  }
}

NetlabLock::NetlabLock(const std::string& folder)
    : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  int locked = -1;
  do {
    locked = flock(folder_.fd(), LOCK_EX);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0) throw_netlab(fmt::format("lock {}", folder), errno);
}

std::shared_ptr<NetlabCounters> map_netlab_counters(const std::string& path, bool create) {
  if (create) unlink(path.c_str());  // whoever has the old ones mapped keeps them
  const int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0);
  const Socket file(open(path.c_str(), flags, 0600));
  if (!file.open()) {
    if (!create) return nullptr;
    throw_netlab(fmt::format("create {}", path), errno);
  }
  struct stat info {};
  if (create && ftruncate(file.fd(), sizeof(NetlabCounters)) != 0) {
    throw_netlab(fmt::format("write {}", path), errno);
  }
  if (fstat(file.fd(), &info) != 0 || info.st_size != static_cast<off_t>(sizeof(NetlabCounters))) {
    return nullptr;
  }
  void* memory =
      mmap(nullptr, sizeof(NetlabCounters), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (memory == MAP_FAILED) throw_netlab(fmt::format("map {}", path), errno);
  // A file of zeros is an object of lock-free atomics that are zero.
  return {static_cast<NetlabCounters*>(memory),
          [](NetlabCounters* counters) { munmap(counters, sizeof(NetlabCounters)); }};
}

}  // namespace orrery::executor
