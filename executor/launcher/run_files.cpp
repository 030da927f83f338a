#include "executor/launcher/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "models/base/check.h"
#include "models/base/file.h"
#include "models/ir/perfetto.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& bytes) {
  if (const auto problem = write_file_atomically(path.string(), bytes)) {
    throw std::runtime_error(*problem);
  }
}

void create(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  }
}

std::string losses_path(const std::string& out) { return (fs::path(out) / "losses.csv").string(); }

}  // namespace

bool is_written(const std::string& out) {
  const int file = ::open(losses_path(out).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool taken = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return taken;
}

void write_generation(const std::string& out, const ir::Program& program, const ir::RunLog& log,
                      const std::function<int(DeviceId)>& node_of,
                      const std::function<std::string(int)>& node_name) {
  const fs::path folder = fs::path(out) / fmt::format("generation-{}", log.generation);
  create(folder);
  write(folder / "program.pb", ir::serialize(program));
  write(folder / "run.log", ir::serialize(log));
  const std::string mismatch = ir::find_mismatch(program, log);
  ORRERY_CHECK(mismatch.empty(), "log of another program: {}", mismatch);
  ir::TimelineNames names;
  names.device = [](DeviceId id) { return fmt::format("device {}", id.value); };
  names.node_of = [&](DeviceId id) { return NodeId{node_of(id)}; };
  names.node = [&](NodeId id) { return node_name(id.value); };
  std::ostringstream timeline;
  ir::write_perfetto(program, log, names, timeline);
  write(folder / "timeline.perfetto-trace", std::move(timeline).str());
}

LossFile::LossFile(const std::string& out) {
  create(out);
  path_ = losses_path(out);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  // Where locks are not supported nobody is kept out.
  const bool taken = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (taken || ::ftruncate(file_, 0) != 0) {
    const std::string why = taken ? "another run writes it" : std::strerror(errno);
    ::close(file_);
    const std::string what = fmt::format("cannot write {}: {}", path_, why);
    if (taken) throw FolderTaken(what);
    throw std::runtime_error(what);
  }
  write("generation,step,loss,start_seconds,step_seconds,tokens_per_second\n");
}

LossFile::~LossFile() {
  if (file_ >= 0) ::close(file_);
}

void LossFile::add(const StepLine& line) {
  write(fmt::format("{},{},{:.17g},{:.9f},{:.9f},{:.3f}\n", line.generation, line.step, line.loss,
                    line.start_seconds, line.seconds, line.tokens_per_second));
}

void LossFile::write(const std::string& text) {
  if (const int error = append_fully(file_, text)) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(error)));
  }
}

}  // namespace orrery::executor
