// Loaded before the C library (LD_PRELOAD): makes the n-th system call of a kind, counted over a
// command and all its processes, fail, come short, lie or kill.
//
//   ORRERY_FAULT_COUNTS  file of kKinds 64-bit counters that all processes share
//   ORRERY_FAULT         KIND:N[:stays][,...]; without it calls are only counted
//
// `stays`: all later calls of the kind, too. On regular files: full (ENOSPC where something is
// written), broken (EIO of reads, writes and flushes), short (half of the bytes), interrupted
// (EINTR), kill (this process), kill_all (its process group), flip_file (a bit of what is written).
// On what sockets send: flip (a bit), reset (the connection), cut (from then on this connection
// loses what it is given), delay (0.3 s; with `stays` 2 ms each), stall (4 s), stop and
// kill_sending (the process).
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

enum Kind {
  full,
  broken,
  short_count,
  interrupted,
  kill_self,
  kill_all,
  flip_file,
  flip,
  reset,
  cut,
  delay,
  stall,
  stop,
  kill_sending,
  kKinds
};
constexpr const char* kNames[kKinds] = {"full",     "broken",    "short", "interrupted", "kill",
                                        "kill_all", "flip_file", "flip",  "reset",       "cut",
                                        "delay",    "stall",     "stop",  "kill_sending"};

struct Fault {
  bool asked = false;
  std::uint64_t at = 0;
  bool stays = false;
};
struct Plan {
  std::atomic<std::uint64_t>* counts = nullptr;
  Fault faults[kKinds];
};

Plan read_plan() {
  Plan plan;
  const char* path = std::getenv("ORRERY_FAULT_COUNTS");
  if (path == nullptr) return plan;
  const int file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (file < 0) return plan;
  void* memory =
      ::mmap(nullptr, kKinds * sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return plan;
  plan.counts = static_cast<std::atomic<std::uint64_t>*>(memory);
  const char* text = std::getenv("ORRERY_FAULT");
  if (text == nullptr) return plan;
  while (text != nullptr && *text != '\0') {
    const char* colon = std::strchr(text, ':');
    if (colon == nullptr) break;
    const auto length = static_cast<std::size_t>(colon - text);
    char* end = nullptr;
    const std::uint64_t at = std::strtoull(colon + 1, &end, 10);
    for (int kind = 0; kind < kKinds; ++kind) {
      if (std::strlen(kNames[kind]) == length && std::strncmp(text, kNames[kind], length) == 0) {
        plan.faults[kind] = {true, at, std::strncmp(end, ":stays", 6) == 0};
      }
    }
    text = std::strchr(end, ',');
    if (text != nullptr) ++text;
  }
  return plan;
}

const Plan& plan() {
  static const Plan kMade = read_plan();
  return kMade;
}

__attribute__((constructor)) void begin() { plan(); }

/// This call is one that the kind may strike: is it this one's turn?
bool strikes(Kind kind) {
  const Plan& p = plan();
  if (p.counts == nullptr) return false;
  const std::uint64_t n = p.counts[kind].fetch_add(1);
  const Fault& fault = p.faults[kind];
  return fault.asked && (n == fault.at || (fault.stays && n > fault.at));
}

void maybe_killed() {
  if (strikes(kill_self)) ::raise(SIGKILL);
  if (strikes(kill_all)) ::kill(0, SIGKILL);
}

bool regular(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

/// errno of a call that changes names or sizes, 0 to let it pass.
int spoiled_change() {
  maybe_killed();
  if (strikes(full)) return ENOSPC;
  if (strikes(broken)) return EIO;
  return 0;
}

/// The same for a transfer; `size` may become shorter.
int spoiled_transfer(bool writes, std::size_t& size) {
  maybe_killed();
  if (writes && strikes(full)) return ENOSPC;
  if (strikes(broken)) return EIO;
  if (strikes(interrupted)) return EINTR;
  if (size > 1 && strikes(short_count)) size /= 2;
  return 0;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

template <class Result, class... Arguments>
Result change(const char* name, Arguments... arguments) {
  if (const int error = spoiled_change()) {
    errno = error;
    return static_cast<Result>(-1);
  }
  return next<Result (*)(Arguments...)>(name)(arguments...);
}

template <class... Rest>
ssize_t read_transfer(const char* name, int fd, void* to, std::size_t size, Rest... rest) {
  if (regular(fd)) {
    if (const int error = spoiled_transfer(false, size)) {
      errno = error;
      return -1;
    }
  }
  return next<ssize_t (*)(int, void*, std::size_t, Rest...)>(name)(fd, to, size, rest...);
}

template <class... Rest>
ssize_t write_transfer(const char* name, int fd, const void* from, std::size_t size, Rest... rest) {
  std::vector<char> spoiled;
  if (regular(fd)) {
    if (const int error = spoiled_transfer(true, size)) {
      errno = error;
      return -1;
    }
    if (size > 0 && strikes(flip_file)) {
      spoiled.assign(static_cast<const char*>(from), static_cast<const char*>(from) + size);
      spoiled[size / 2] = static_cast<char>(spoiled[size / 2] ^ 4);
      from = spoiled.data();
    }
  }
  return next<ssize_t (*)(int, const void*, std::size_t, Rest...)>(name)(fd, from, size, rest...);
}

/// Connections that lose what they are given.
std::atomic<bool> is_cut[1 << 16];

/// What becomes of a message of a socket: its bytes, `size` of them, may be changed. True: they
/// are lost.
bool spoiled_message(int fd, char* bytes, std::size_t size) {
  if (strikes(kill_sending)) ::raise(SIGKILL);
  if (strikes(stop)) ::raise(SIGSTOP);
  if (strikes(stall)) ::usleep(4'000'000);
  if (strikes(delay)) ::usleep(plan().faults[delay].stays ? 2'000 : 300'000);
  if (strikes(reset)) ::shutdown(fd, SHUT_RDWR);
  if (strikes(flip) && size > 0) bytes[size / 2] = static_cast<char>(bytes[size / 2] ^ 4);
  if (strikes(cut)) is_cut[fd & 0xffff] = true;
  return is_cut[fd & 0xffff];
}

int opened(const char* name, const char* path, int flags, mode_t mode) {
  if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0) {
    if (const int error = spoiled_change()) {
      errno = error;
      return -1;
    }
  } else {
    maybe_killed();
  }
  return next<int (*)(const char*, int, ...)>(name)(path, flags, mode);
}

mode_t mode_of(int flags, va_list& list) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(list, unsigned)) : 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return opened("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return opened("open64", path, flags, mode);
}
ssize_t read(int fd, void* to, std::size_t size) { return read_transfer("read", fd, to, size); }
ssize_t pread(int fd, void* to, std::size_t size, off_t at) {
  return read_transfer("pread", fd, to, size, at);
}
ssize_t pread64(int fd, void* to, std::size_t size, off64_t at) {
  return read_transfer("pread64", fd, to, size, at);
}
ssize_t write(int fd, const void* from, std::size_t size) {
  return write_transfer("write", fd, from, size);
}
ssize_t pwrite(int fd, const void* from, std::size_t size, off_t at) {
  return write_transfer("pwrite", fd, from, size, at);
}
ssize_t pwrite64(int fd, const void* from, std::size_t size, off64_t at) {
  return write_transfer("pwrite64", fd, from, size, at);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  std::size_t parts_left = static_cast<std::size_t>(count);
  if (regular(fd)) {
    if (const int error = spoiled_transfer(true, parts_left)) {
      errno = error;
      return -1;
    }
  }
  return next<ssize_t (*)(int, const iovec*, int)>("writev")(fd, parts,
                                                             static_cast<int>(parts_left));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  std::vector<char> all;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* part = static_cast<const char*>(message->msg_iov[i].iov_base);
    all.insert(all.end(), part, part + message->msg_iov[i].iov_len);
  }
  if (spoiled_message(fd, all.data(), all.size())) return static_cast<ssize_t>(all.size());
  iovec part{all.data(), all.size()};
  msghdr copy = *message;
  copy.msg_iov = &part;
  copy.msg_iovlen = 1;
  return next<ssize_t (*)(int, const msghdr*, int)>("sendmsg")(fd, &copy, flags);
}
ssize_t send(int fd, const void* from, std::size_t size, int flags) {
  std::vector<char> all(static_cast<const char*>(from), static_cast<const char*>(from) + size);
  if (spoiled_message(fd, all.data(), size)) return static_cast<ssize_t>(size);
  return next<ssize_t (*)(int, const void*, std::size_t, int)>("send")(fd, all.data(), size, flags);
}
int close(int fd) {
  if (fd >= 0) is_cut[fd & 0xffff] = false;
  return next<int (*)(int)>("close")(fd);
}
int fsync(int fd) { return change<int>("fsync", fd); }
int fdatasync(int fd) { return change<int>("fdatasync", fd); }
int ftruncate(int fd, off_t size) noexcept { return change<int>("ftruncate", fd, size); }
int ftruncate64(int fd, off64_t size) noexcept { return change<int>("ftruncate64", fd, size); }
int truncate(const char* path, off_t size) noexcept { return change<int>("truncate", path, size); }
int mkdir(const char* path, mode_t mode) noexcept { return change<int>("mkdir", path, mode); }
int rename(const char* from, const char* to) noexcept { return change<int>("rename", from, to); }
int unlink(const char* path) noexcept {
  maybe_killed();  // A full disk lets files go.
  return next<int (*)(const char*)>("unlink")(path);
}
}
#pragma GCC visibility pop
