/// Files of a lab's state. Private to executor/netlab.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/netlab/process.h"
#include "executor/netlab/spec.h"
#include "executor/netlab/switch.h"
#include "models/config/visitor.h"

namespace orrery::executor {

struct NetlabState {
  NetlabSpec spec;
  ProcessId switch_process;
};
void describe(config::Visitor& v, NetlabState& state);

/// The first of the folders in which this user may write, made if need be. Throws NetlabError.
std::string netlab_writable_folder(const std::vector<std::string>& folders);
/// Path of the state of this name in the first folder that has one; none: there is none.
std::optional<std::string> find_netlab_state(const std::string& name,
                                             const std::vector<std::string>& folders);
std::string netlab_state_path(const std::string& folder, const std::string& name);
std::string netlab_counters_path(const std::string& state);

/// None where the file is not there or makes no sense.
std::optional<NetlabState> read_netlab_state(const std::string& path);
/// Whole or not at all. Throws NetlabError.
void write_netlab_state(const std::string& path, const NetlabState& state);

/// A lock on the folder, until destruction. Waits for it.
class NetlabLock {
 public:
  explicit NetlabLock(const std::string& folder);

 private:
  Socket folder_;
};

/// The counters' file in memory; null where it is not there. `create`: makes it, all zero.
std::shared_ptr<NetlabCounters> map_netlab_counters(const std::string& path, bool create);

}  // namespace orrery::executor
