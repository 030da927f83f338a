#include "executor/launcher/file_keepers.h"

#include <fmt/format.h>

#include <chrono>

namespace orrery::executor {
namespace {

/// For an agent to show that it lives: many pauses between its heartbeats, on a busy machine, too.
constexpr std::chrono::milliseconds kAnswer{5'000};

}  // namespace

std::vector<std::int32_t> FileKeepers::find(const std::set<std::int32_t>& lost,
                                            const std::vector<std::int32_t>& members,
                                            const std::function<void(const std::string&)>& say) {
  std::vector<std::int32_t> out;
  if (settings_.checkpoint_every == 0 || settings_.local_checkpoints.empty()) return out;
  std::set<int> served;
  for (const std::int32_t device : members) served.insert(processes_.node_of(device));
  for (const std::int32_t device : lost) {
    const int node = processes_.node_of(device);
    if (served.contains(node) || !tried_.insert(node).second) continue;
    const std::string& name = processes_.nodes()[static_cast<std::size_t>(node)];
    const bool lives = processes_.answers(node, kAnswer);
    if (lives) out.push_back(device);
    say(lives ? fmt::format("{} has no rank left: its agent serves its checkpoints", name)
              : fmt::format("{} does not answer: its checkpoints are out of reach", name));
  }
  return out;
}

}  // namespace orrery::executor
