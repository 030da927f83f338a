/// Files that a run leaves behind. Private to executor/launcher.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "models/ir/run_log.h"

namespace orrery::executor {

/// out/generation-<g>/{program.pb, run.log, timeline.perfetto-trace}. `node_of` names the machine
/// of a device, as a number and in words. Throws std::runtime_error.
void write_generation(const std::string& out, const ir::Program& program, const ir::RunLog& log,
                      const std::function<int(DeviceId)>& node_of,
                      const std::function<std::string(int)>& node_name);

/// out/losses.csv: a row for each finished step, in the file as soon as it is added, in one write:
/// whatever ends the launcher, whole rows are left.
class LossFile {
 public:
  /// Begins the file with its header, in place of one that is there, and keeps a lock on it
  /// (flock) while it lives. Throws std::runtime_error, FolderTaken when another one has the lock.
  explicit LossFile(const std::string& out);
  ~LossFile();
  LossFile(const LossFile&) = delete;
  LossFile& operator=(const LossFile&) = delete;
  /// Throws std::runtime_error.
  void add(const StepLine& line);

 private:
  void write(const std::string& text);
  std::string path_;
  int file_ = -1;
};

}  // namespace orrery::executor
