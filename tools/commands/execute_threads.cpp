#include "tools/commands/execute_threads.h"

#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "executor/cuda/backend.h"
#include "models/base/text.h"
#include "models/config/document.h"
#include "tools/cli/flags.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/gpu_shares.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

using config::Diagnostics;

constexpr const char* kFlag = "--shares";
constexpr const char* kExample = "for example --shares 0=50,1=25,2=25, or one number for all";

/// What a run on threads has not, and why.
void refuse_flags(const ExecuteSettings& args, Diagnostics& diagnostics) {
  const auto refuse = [&](bool given, const char* flag, const char* why) {
    if (!given) return;
    diagnostics.add(at_flag(flag), fmt::format("ranks are threads: {}", why),
                    args.shares ? "leave it out with --shares" : "--ranks processes");
  };
  const char* one_process = "all are in one process of this machine";
  refuse(args.hosts.has_value(), "--hosts", one_process);
  refuse(args.netlab, "--netlab", one_process);
  refuse(args.listen.has_value(), "--listen", "there is no store that others could reach");
  refuse(args.transport == "nccl", "--transport", "nccl wants a process for each");
  refuse(args.elastic.has_value(), "--elastic", "what ends one of them ends all");
  refuse(!args.kills.empty(), "--kill", "what kills one of them kills all");
  refuse(!args.switches.empty(), "--switch-to", "they run one plan");
  refuse(args.checkpoint_every.has_value(), "--checkpoint-every", "they write no checkpoints");
}

std::int64_t percent_of(const std::string& text, Diagnostics& diagnostics) {
  const std::int64_t percent = whole_number(text, kFlag, 1, 1, diagnostics);
  if (percent > 100) {
    diagnostics.add(at_flag(kFlag), fmt::format("{} % of a card", percent), "at most 100");
  }
  return percent;
}

void read_shares(const std::string& text, ThreadPlacement& placement, Diagnostics& diagnostics) {
  const std::vector<std::string> items = split(text, ',');
  if (items.size() == 1 && items.front().find('=') == std::string::npos) {
    placement.share = percent_of(items.front(), diagnostics);
    return;
  }
  if (items.empty()) diagnostics.add(at_flag(kFlag), "names no share", kExample);
  for (const std::string& item : items) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      diagnostics.add(at_flag(kFlag), fmt::format("'{}' is not DEVICE=PERCENT", item), kExample);
      continue;
    }
    const std::size_t before = diagnostics.problems().size();
    const std::int64_t device = whole_number(item.substr(0, equals), kFlag, 0, 0, diagnostics);
    const std::int64_t percent = percent_of(item.substr(equals + 1), diagnostics);
    if (diagnostics.problems().size() != before) continue;
    if (!placement.shares.emplace(device, percent).second) {
      diagnostics.add(at_flag(kFlag), fmt::format("device {} is named twice", device));
    }
  }
}

void check_sum(const ThreadPlacement& placement, Diagnostics& diagnostics) {
  std::int64_t sum = 0;
  for (const auto& [device, percent] : placement.shares) sum += percent;
  if (sum <= 100) return;
  diagnostics.add(
      at_flag(kFlag),
      fmt::format("{} devices have {} % of the card together", placement.shares.size(), sum),
      "100 at most: parts of a card do not overlap");
}

/// "device 1 is a 'H100-80GB 25%' in the cluster file, its share is 50 %"; "": the names agree.
std::string misnamed(const models::Cluster& cluster, DeviceId device, std::int64_t percent) {
  const std::string& type = cluster.gpu(device).name;
  if (!type.ends_with('%') || type.ends_with(type_of_share("", percent))) return "";
  return fmt::format("device {} is a '{}' in the cluster file, its share is {} %", device.value,
                     type, percent);
}

}  // namespace

ThreadPlacement thread_placement(const ExecuteSettings& args, Diagnostics& diagnostics) {
  ThreadPlacement out;
  const bool known = !args.ranks || *args.ranks == "threads" || *args.ranks == "processes";
  if (!known) {
    diagnostics.add(at_flag("--ranks"), fmt::format("unknown value '{}'", *args.ranks),
                    config::suggest(*args.ranks, {"processes", "threads"}, "kinds of ranks"));
  }
  out.threads = args.shares || args.ranks == "threads";
  if (args.shares) {
    if (args.ranks == "processes") {
      diagnostics.add(at_flag("--ranks"), "parts of one card are disjoint only in one process",
                      "leave it out: --shares means --ranks threads");
    }
    if (args.backend.value_or("cpu") != "cuda") {
      diagnostics.add(at_flag(kFlag), "shares are of a GPU's multiprocessors",
                      "--backend cuda; or --slowdown DEVICE=FACTOR on the cpu");
    }
    const std::size_t before = diagnostics.problems().size();
    read_shares(*args.shares, out, diagnostics);
    if (diagnostics.problems().size() == before) check_sum(out, diagnostics);
  }
  if (out.threads) refuse_flags(args, diagnostics);
  return out;
}

void set_shares(ThreadPlacement& placement, const ir::Program& program, int cluster,
                Diagnostics& diagnostics) {
  for (const auto& [device, percent] : placement.shares) {
    if (device < cluster) continue;
    diagnostics.add(at_flag(kFlag), fmt::format("device {} of {}", device, cluster),
                    fmt::format("0 to {}", cluster - 1));
  }
  if (placement.share) {
    for (const ir::Rank& rank : program.ranks) {
      placement.shares[rank.device.value] = *placement.share;
    }
    check_sum(placement, diagnostics);
  }
  if (placement.shares.empty()) return;
  for (const ir::Rank& rank : program.ranks) {
    if (placement.shares.contains(rank.device.value)) continue;
    diagnostics.add(at_flag(kFlag),
                    fmt::format("the plan needs device {}, which has no share", rank.device.value),
                    kExample);
  }
}

executor::ThreadRanks make_thread_ranks(const ThreadPlacement& placement,
                                        const executor::LaunchOptions& options,
                                        const models::Cluster& cluster,
                                        std::vector<std::string>& notes) {
  executor::ThreadRanks out;
  if (placement.shares.empty()) return out;
  Diagnostics diagnostics;
  const executor::CudaStatus status = executor::cuda_status();
  if (status.devices.empty()) diagnostics.add(at_flag("--backend"), "cuda: " + status.problem);
  diagnostics.raise();
  const executor::CudaDeviceInfo& gpu = status.devices.front();
  std::vector<int> counts;
  for (const ir::Rank& rank : options.first.program.ranks) {
    const std::int64_t percent = placement.shares.at(rank.device.value);
    counts.push_back(multiprocessors_of_share(gpu, percent));
    notes.push_back(fmt::format("device {}: {} of the {} multiprocessors of {} ({} %)",
                                rank.device.value, counts.back(), gpu.multiprocessors, gpu.name,
                                percent));
    std::string other = misnamed(cluster, rank.device, percent);
    if (!other.empty()) notes.push_back(std::move(other));
  }
  // One split for all, so that the parts are disjoint. Each rank takes its own out of it.
  using Parts = std::vector<std::unique_ptr<executor::Backend>>;
  try {
    const auto parts = std::make_shared<Parts>(
        executor::make_green_backends(options.settings.precision, 0, counts));
    out.backend = [parts](int rank, DeviceId) {
      return std::move((*parts)[static_cast<std::size_t>(rank)]);
    };
  } catch (const std::runtime_error& error) {
    diagnostics.add(at_flag(kFlag), error.what());
  }
  diagnostics.raise();
  return out;
}

}  // namespace orrery::tools
