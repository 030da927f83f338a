#include "models/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace orrery {
namespace {

std::string problem(const char* action, const std::string& path, int error) {
  return fmt::format("cannot {} {}: {}", action, path, std::generic_category().message(error));
}

/// A file descriptor that closes itself; fd() is -1 when opening failed.
class Descriptor {
 public:
  /// `mode`: of a file that is created.
  Descriptor(const std::string& path, int flags, unsigned mode = 0)
      : fd_(::open(path.c_str(), flags, mode)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  /// Some file systems report a full disk only here. Returns 0 or the error.
  int close() {
    const int result = ::close(fd_);
    fd_ = -1;
    return result == 0 ? 0 : errno;
  }

 private:
  int fd_;
};

/// Returns 0 or the error.
int write_new_file(const std::string& path, std::string_view bytes, unsigned mode) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file.fd() < 0) return errno;
  if (const int error = write_fully(file.fd(), bytes)) return error;
  if (::fsync(file.fd()) != 0) return errno;
  return file.close();
}

/// Makes a rename in this folder durable; not all file systems can, and none needs it to be atomic.
void flush_folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : (slash == 0 ? "/" : path.substr(0, slash));
  const Descriptor descriptor(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor.fd() >= 0) (void)::fsync(descriptor.fd());
}

}  // namespace

int write_fully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(written);
  }
  return 0;
}

int append_fully(int fd, std::string_view bytes) {
  struct stat before = {};
  if (::fstat(fd, &before) != 0) return errno;
  const int error = write_fully(fd, bytes);
  // Should cutting fail, too, the first error says more.
  if (error != 0) (void)!::ftruncate(fd, before.st_size);
  return error;
}

std::optional<std::string> write_file_atomically(const std::string& path, std::string_view bytes,
                                                 unsigned mode) {
  static std::atomic<unsigned> counter{0};  // Threads of one process may write to one path.
  const std::string temporary = fmt::format("{}.tmp.{}.{}", path, ::getpid(), counter++);
  if (const int error = write_new_file(temporary, bytes, mode)) {
    if (error != EEXIST) ::unlink(temporary.c_str());
    return problem("write", path, error);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return problem("write", path, error);
  }
  flush_folder_of(path);
  return std::nullopt;
}

std::optional<std::string> read_file(const std::string& path, std::string& bytes) {
  bytes.clear();
  const Descriptor file(path, O_RDONLY | O_CLOEXEC);
  if (file.fd() < 0) return problem("read", path, errno);
  struct stat status = {};
  if (::fstat(file.fd(), &status) == 0 && status.st_size > 0) {
    bytes.reserve(status.st_size);
  }
  char block[1 << 16];
  while (true) {
    const ssize_t count = ::read(file.fd(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return problem("read", path, errno);
    if (count == 0) return std::nullopt;
    bytes.append(block, count);
  }
}

}  // namespace orrery
