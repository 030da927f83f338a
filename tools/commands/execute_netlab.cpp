#include "tools/commands/execute_netlab.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include "executor/netlab/lab.h"
#include "executor/netlab/namespaces.h"
#include "tools/cli/flags.h"
#include "tools/commands/inputs.h"
#include "tools/commands/netlab_cluster.h"

namespace orrery::tools {
namespace {

executor::NetlabOptions lab_options() {
  executor::NetlabOptions options;
  options.switch_command = {std::filesystem::read_symlink("/proc/self/exe"), "netlab", "switch"};
  return options;
}

std::vector<double> node_slowdowns(const executor::NetlabSpec& spec) {
  return executor::netlab_slowdowns(spec, std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

executor::NetlabSpec netlab_for_run(const models::Cluster& cluster,
                                    config::Diagnostics& diagnostics) {
  executor::NetlabSpec spec = netlab_of(cluster);
  if (spec.name.empty()) spec.name = "cluster";
  for (const std::string& problem : executor::find_problems(spec)) {
    diagnostics.add(at_flag("--netlab"), problem);
  }
  return spec;
}

ExecuteLab::ExecuteLab(executor::NetlabSpec spec, std::function<void(const std::string&)> say)
    : spec_(std::move(spec)), say_(std::move(say)) {
  created_ = executor::netlab_up(spec_, lab_options()) == executor::NetlabUp::created;
  say_(fmt::format("lab {}: {} nodes {}", spec_.name, spec_.nodes.size(),
                   created_ ? "set up" : "that were up, and will stay"));
}

ExecuteLab::~ExecuteLab() {
  if (!created_) return;
  try {
    const executor::NetlabDown down = executor::netlab_down(spec_, lab_options());
    say_(fmt::format("lab {}: removed", spec_.name));
    if (!down.processes.empty()) {
      say_(fmt::format("still run, without a network: {}", fmt::join(down.processes, ", ")));
    }
  } catch (const std::exception& error) {
    try {
      say_(fmt::format("lab {}: {}", spec_.name, error.what()));
    } catch (const std::exception&) {
      // Nobody listens: standard error is closed.
    }
  }
}

std::vector<executor::HostSlots> ExecuteLab::hosts() const {
  std::vector<executor::HostSlots> out;
  for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    out.push_back({spec_.nodes[i].name,
                   spec_.nodes[i].devices,
                   {"--address", executor::netlab_address(node), "--namespace",
                    executor::namespace_name(spec_, node)}});
  }
  return out;
}

std::map<std::int32_t, double> ExecuteLab::slowdowns() const {
  const std::vector<double> by_node = node_slowdowns(spec_);
  std::map<std::int32_t, double> out;
  std::int32_t device = 0;
  for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
    for (int d = 0; d < spec_.nodes[i].devices; ++d) out[device++] = by_node[i];
  }
  return out;
}

executor::LaunchReport ExecuteLab::launch(executor::LaunchOptions options) const {
  options.listen = executor::netlab_address(0);
  executor::LaunchReport report;
  std::exception_ptr error;
  // A thread enters a namespace for itself and the threads that it starts; the others stay.
  std::thread([&] {
    try {
      executor::enter_namespace(executor::namespace_name(spec_, 0));
      report = executor::launch(std::move(options));
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return report;
}

}  // namespace orrery::tools
