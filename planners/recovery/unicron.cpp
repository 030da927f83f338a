// Unicron: a ladder of answers by severity. A failed process is started again in place; a lost node
// makes the job go on with what is left at once. State comes from the nearest holder: GPU of a
// data-parallel peer, host memory, disk, cloud. Detection is in-band: node, process, exception.
// [Unicron, He et al. 2023, arXiv 2401.00134, sections 4 to 6]
// Deviation: partial gradients of the iteration in flight are not reused: training resumes from
// finished iterations only, so that iteration is lost; and when the job itself fails, GPU memory is
// lost with it. One job has the cluster, so that the weighted sum over jobs is its speed.
#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/memory_cloud.h"

namespace orrery::planners {

extern const RecoveryEntry kUnicronRecovery;

namespace {

std::vector<OptionInfo> options() {
  PhaseDefaults phases;
  phases.detect = {"5.6",
                   "Seconds until a lost device is noticed where the trace does not say: node "
                   "health monitoring [Unicron, Table 2, unverified]."};
  phases.detect_exception = {
      "1.8",
      "Seconds until a failed process is noticed: process supervision; an exception that the "
      "process reports takes 0.3 [Unicron, Table 2, unverified]."};
  phases.reinitialize = {
      "5",
      "Seconds to build new communicators: below 5 s on 2,048 GPUs; Unicron names no figure of its "
      "own [MegaScale, Jiang et al., NSDI 2024, unverified]."};
  std::vector<OptionInfo> all = checkpointed_options(phases);
  all.push_back({"restart_process", "27.2",
                 "Seconds to start a failed process again in place; Unicron gives none: a requeue "
                 "of 5 min [Kokolis et al. 2025] over 11.04 [ByteRobust, in-place update, "
                 "unverified]; derived."});
  all.push_back({"memory_replicas", "2",
                 "Nodes that hold each share in host memory, the own one included: Unicron's "
                 "checkpoints are Gemini's; 0: none."});
  all.push_back(kGeminiCloudInterval);
  return all;
}

class Unicron final : public MemoryCloudPolicy {
 public:
  Unicron(const PolicyInput& input, MemoryCloudOptions options)
      : MemoryCloudPolicy(input, std::move(options.rules), std::move(options.settings)) {}
  std::string name() const override { return kUnicronRecovery.name; }
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  const Stall restart = stall_option(reader, options(), "restart_process");
  auto read = read_memory_cloud(reader, options(), "memory_replicas", 0);
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto both = std::get<MemoryCloudOptions>(std::move(read));
  both.rules.restart_processes = restart;
  both.rules.order = {StateSource::own_gpu,   StateSource::peer_gpu, StateSource::own_host,
                      StateSource::peer_host, StateSource::own_nvme, StateSource::peer_nvme,
                      StateSource::cloud};
  return std::make_unique<Unicron>(input, std::move(both));
}

}  // namespace

const RecoveryEntry kUnicronRecovery = {
    "unicron",
    "Unicron (arXiv 2401.00134), 4 to 6",
    "by severity: starts a failed process again, or goes on at once with the best plan for what is "
    "left; state from the nearest holder",
    "any plan; data-parallel replicas make GPU memory enough",
    "the iteration in flight, while each share has a holder",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "the ladder has no retry rung: a failed process is started again at once; partial gradients of "
    "the iteration in flight are not reused, it is lost; GPU memory is lost when the job itself "
    "fails; one job has the cluster, so that the weighted sum over jobs is its speed; copies to "
    "peers and uploads to the cloud do not slow iterations unless background transfers are "
    "simulated",
    options,
    make,
};

}  // namespace orrery::planners
