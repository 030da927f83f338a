#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <system_error>

namespace orrery::fuzz {

std::span<const Target> targets() {
  static constexpr std::array<Target, 14> all = {
      Target{"validate", "YAML of every kind, traces, programs and logs, as orrery validate",
             validate},
      Target{"document",
             "cluster, model, huggingface, job, plan, profile; the first line names one", document},
      Target{"program", "Program as protobuf", program},
      Target{"run_log", "RunLog as protobuf", run_log},
      Target{"trace", "traces", trace},
      Target{"trace_import", "trace formats of others; the first line names one", trace_import},
      Target{"import", "profiles and topologies of others; the first line names one", import},
      Target{"recorded_run", "a rank's trace; the first line says whose", recorded_run},
      Target{"command_line", "arguments, one a line", command_line},
      Target{"handshake", "a stranger's side of the handshake, both ways", handshake},
      Target{"frames", "frames of a rank that has the keys", frames},
      Target{"store", "messages of a client that has the keys", store},
      Target{"checkpoint", "checkpoint files whose hash is right", checkpoint},
      Target{"step_report", "what ranks tell the launcher", step_report},
  };
  return all;
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
  if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("no file in memory");
  }
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

MemoryFile::~MemoryFile() { ::close(fd_); }

MemoryFolder::MemoryFolder() {
  std::string name = "/dev/shm/orrery-fuzz-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder in memory");
  path_ = name;
}

MemoryFolder::~MemoryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Chosen choose(Input input) {
  const std::string text = text_of(input);
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return {text, ""};
  return {text.substr(0, end), text.substr(end + 1)};
}

}  // namespace orrery::fuzz
