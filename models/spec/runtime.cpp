#include "models/spec/runtime.h"

#include <array>

#include "models/base/check.h"
#include "models/config/visitor.h"
#include "models/spec/ranges.h"

namespace orrery::models {
namespace {

struct MonitorFacts {
  Monitor monitor;
  const char* name;
  double loss;     ///< Seconds.
  double process;  ///< Seconds.
  const char* source;
};

constexpr std::array kMonitors = {
    MonitorFacts{Monitor::timeout, "timeout", 600, 5,
                 "time-out of PyTorch's NCCL process group [pytorch/pytorch, pull request 110947]; "
                 "processes polled each 5 s [torchrun before PyTorch 2.3, unverified]"},
    MonitorFacts{
        Monitor::agent, "agent", 15, 5,
        "keep-alive each 5 s, lost after 3 [PyTorch, DynamicRendezvousHandler.from_backend]; "
        "processes polled each 5 s [torchrun before PyTorch 2.3, unverified]"},
    MonitorFacts{Monitor::heartbeat, "heartbeat", 5, 5,
                 "heartbeat time-out of the lighthouse [torchft, unverified]"},
    MonitorFacts{Monitor::inspection, "inspection", 10, 10,
                 "inspection interval of GPUs [ByteRobust, 4, unverified]"},
    MonitorFacts{Monitor::supervision, "supervision", 5.6, 1.8,
                 "node health monitoring and process supervision [Unicron, Table 2, unverified]"},
};

const MonitorFacts& facts(const Runtime& runtime) {
  for (const MonitorFacts& each : kMonitors) {
    if (each.monitor == runtime.monitor) return each;
  }
  ORRERY_CHECK(false, "a monitor without facts");
  return kMonitors.front();
}

}  // namespace

std::vector<std::pair<Monitor, const char*>> enum_names(Monitor) {
  std::vector<std::pair<Monitor, const char*>> names;
  for (const MonitorFacts& each : kMonitors) names.emplace_back(each.monitor, each.name);
  return names;
}

void describe(config::Visitor& v, Runtime& runtime) {
  v.title("Runtime");
  v.doc(
      "What the runtime under a job takes to notice, to start, to connect and to plan; the same "
      "for all recovery policies.");
  v.optional("monitor", runtime.monitor,
             "what notices a loss, and the end of a process. timeout: 600 s and 5 s; agent: 15 s "
             "and 5 s; heartbeat: 5 s for both; inspection: 10 s for both; supervision: 5.6 s and "
             "1.8 s [PyTorch, torchft, ByteRobust, Unicron]");
  v.optional("detect_loss", runtime.detect_loss,
             "until lost devices are noticed where the trace does not say; absent: the monitor's");
  v.optional("detect_process", runtime.detect_process,
             "the same for failed processes, and for machines that close their connections when "
             "they go; absent: the monitor's");
  v.optional("start_node", runtime.start_node,
             "until processes run on a node on which none of the job's did: allocation, container, "
             "environment, code, CUDA context. 300 s: low end of the 5 to 20 min of restarts on "
             "Meta's RSC [Kokolis et al. 2025, arXiv 2410.21680, unverified]; 45 s until a node is "
             "ready in Oobleck's artifact [branch sosp23-artifact]");
  v.optional("start_process", runtime.start_process,
             "until processes run again where the container is there: code, data loader, CUDA "
             "context. 27.2 s: a requeue of 300 s over 11.04 [ByteRobust, in-place update, "
             "unverified; derived]; 49 to 112 s for whole restarts of BERT on 15 to 30 nodes "
             "[Oobleck's artifact], more than 240 s [Gemini, Figure 14, unverified]");
  v.optional(
      "connect_rank", runtime.connect_rank,
      "to build communicators, for each rank that gets new ones. 2.44 ms: below 5 s on 2,048 "
      "GPUs, and 511 ms, 1,047 s on as many, before MegaScale's changes [Jiang et al., NSDI "
      "2024, unverified; linear growth assumed]");
  v.optional("search", runtime.search,
             "what a search takes, by planner, each time a plan of it is needed; planners that are "
             "not named: nothing, as if plans were ready. `orrery plan` says what one takes");
  for (const auto& [name, seconds] : runtime.search)
    v.between("search", seconds, Seconds{0}, kLongestPhase);
  if (runtime.detect_loss)
    v.between("detect_loss", *runtime.detect_loss, Seconds{0}, kLongestPhase);
  if (runtime.detect_process)
    v.between("detect_process", *runtime.detect_process, Seconds{0}, kLongestPhase);
  v.between("start_node", runtime.start_node, Seconds{0}, kLongestPhase);
  v.between("start_process", runtime.start_process, Seconds{0}, kLongestPhase);
  v.between("connect_rank", runtime.connect_rank, Seconds{0}, kLongestOp);
}

Seconds detection_of_loss(const Runtime& runtime) {
  return runtime.detect_loss.value_or(Seconds{facts(runtime).loss});
}

Seconds detection_of_process(const Runtime& runtime) {
  return runtime.detect_process.value_or(Seconds{facts(runtime).process});
}

std::string monitor_source(const Runtime& runtime) {
  if (runtime.detect_loss || runtime.detect_process) return "runtime";
  return std::string("monitor ") + facts(runtime).name + ": " + facts(runtime).source;
}

}  // namespace orrery::models
