// Recovery times of AutoHet's section V-C: AutoHet (own NVMe, then NVMe of peers over RDMA, then
// the cloud) and Varuna's way to fetch checkpoints (cloud only), from plans before and after, the
// kit of recovery policies and simulated transfers. Prints a CSV.
//
//     autohet_recovery FOLDER > runs.csv
//
// FOLDER holds recovery.yaml and what it names. `bound_s` is the busiest resource's bytes over its
// bandwidth, a closed form to compare the simulation with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "experiments/recovery/case_study.h"
#include "models/base/check.h"
#include "models/config/document.h"
#include "models/spec/library.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/kit/restore.h"

namespace orrery::experiments {

struct CaseModel {
  std::string name;
  config::Located<std::string> model;
  Bytes state;
};

struct CaseStage {
  int width = 1;
  double weight = 1;
};

struct CaseLayout {
  std::vector<CaseStage> stages;
  std::vector<std::vector<int>> pipelines;
};

struct CaseScenario {
  std::string name;
  std::string reading;
  CaseLayout before;
  CaseLayout after;
  std::vector<int> lost;
  bool keep_running = false;
};

struct CaseVariant {
  std::string name;
  models::BandwidthScope cloud_scope = models::BandwidthScope::shared;
  bool replica_dedup = false;
  bool overlap = true;
};

struct CaseFile {
  config::Located<std::string> cluster;
  std::int64_t sequence_length = 0;
  std::vector<CaseModel> models;
  std::vector<CaseScenario> scenarios;
  std::vector<CaseVariant> variants;
};

void describe(config::Visitor& v, CaseModel& model) {
  v.required("name", model.name, "in tables and figures");
  v.required("model", model.model, "of the library, or a file beside this one");
  v.required("state", model.state, "model state: weights, master copy, moments");
  v.positive("state", model.state);
}

void describe(config::Visitor& v, CaseStage& stage) {
  v.required("width", stage.width, "devices of its tensor-parallel group");
  v.required("weight", stage.weight, "share of the state, in any unit");
  v.at_least("width", stage.width, 1);
  v.positive("weight", stage.weight);
}

void describe(config::Visitor& v, CaseLayout& layout) {
  v.required("stages", layout.stages, "equal in all pipelines");
  v.required("pipelines", layout.pipelines, "first device of each stage");
  if (!v.reading() || !v.good()) return;
  for (const std::vector<int>& pipeline : layout.pipelines) {
    if (pipeline.size() != layout.stages.size()) {
      v.problem("pipelines", "each has one device for each stage");
    }
  }
}

void describe(config::Visitor& v, CaseScenario& scenario) {
  v.required("name", scenario.name, "the paper's");
  v.required("reading", scenario.reading, "what happens, in words");
  v.required("before", scenario.before, "layout of the checkpoints");
  v.required("after", scenario.after, "layout that needs the state");
  v.optional("lost", scenario.lost, "devices; NVMe is lost with a node's last device");
  v.optional("keep_running", scenario.keep_running,
             "under AutoHet GPUs that go on keep what they have and read nothing");
}

void describe(config::Visitor& v, CaseVariant& variant) {
  v.required("name", variant.name, "in tables and figures");
  v.optional("cloud_scope", variant.cloud_scope, "who shares the cloud's bandwidth");
  v.optional("replica_dedup", variant.replica_dedup,
             "the first pipeline reads, the others take it from its GPUs afterwards");
  v.optional("overlap", variant.overlap, "own disks, peers and cloud are read side by side");
}

void describe(config::Visitor& v, CaseFile& file) {
  v.schema("orrery/autohet_recovery", 1);
  v.required("cluster", file.cluster, "a file beside this one");
  v.required("sequence_length", file.sequence_length, "tokens");
  v.required("models", file.models, "");
  v.required("scenarios", file.scenarios, "");
  v.required("variants", file.variants, "");
  v.at_least("sequence_length", file.sequence_length, std::int64_t{1});
}

namespace {

using planners::StateSource;

const std::vector<StateSource> kAutohet = {StateSource::own_nvme, StateSource::peer_nvme,
                                           StateSource::cloud};
const std::vector<StateSource> kVaruna = {StateSource::cloud};
const std::vector<StateSource> kGpus = {StateSource::own_gpu, StateSource::peer_gpu};

/// Layers of each stage, so that its blocks (embedding and head at the ends) weigh what they
/// should, as nearly as whole layers allow.
std::vector<int> layers_of(const CaseLayout& layout, const models::Workload& workload) {
  double all = 0;
  double weights = 0;
  for (const models::Block& block : workload.blocks) {
    all += static_cast<double>(models::parameters(block));
  }
  for (const CaseStage& stage : layout.stages) weights += stage.weight;
  std::vector<int> layers;
  const int count = planners::count_layers(workload);
  double wanted = 0;
  int first = 0;
  for (std::size_t s = 0; s < layout.stages.size(); ++s) {
    wanted += all * layout.stages[s].weight / weights;
    int end = count;
    if (s + 1 < layout.stages.size()) {
      double best = INFINITY;
      for (int e = first + 1; e < count; ++e) {
        double sum = 0;
        const ir::Segment so_far = planners::segment_of_layers(workload, 0, e);
        for (int b = 0; b <= so_far.last_block.value; ++b) {
          sum += static_cast<double>(models::parameters(workload.block({b})));
        }
        if (std::abs(sum - wanted) < best) {
          best = std::abs(sum - wanted);
          end = e;
        }
      }
    }
    layers.push_back(end - first);
    first = end;
  }
  return layers;
}

ir::Plan plan_of(const CaseLayout& layout, const models::Workload& workload) {
  const std::vector<int> layers = layers_of(layout, workload);
  ir::Plan plan;
  for (const std::vector<int>& starts : layout.pipelines) {
    ir::Pipeline pipeline;
    int first = 0;
    for (std::size_t s = 0; s < starts.size(); ++s) {
      ir::Segment segment = planners::segment_of_layers(workload, first, layers[s]);
      ir::Group group;
      group.tensor_parallel = layout.stages[s].width;
      for (int i = 0; i < group.tensor_parallel; ++i) group.devices.push_back({starts[s] + i});
      segment.groups = {group};
      pipeline.stages.push_back({{segment}});
      first += layers[s];
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

struct Outcome {
  Seconds time;
  Seconds bound;
  std::map<ir::Location, double> read;  ///< Bytes by where they come from.
  double over_network = 0;              ///< Of what is read from NVMe.
};

/// One model on one cluster. One per process.
class Runner {
 public:
  Runner(const models::Cluster& cluster, const models::Workload& workload, const models::Job& job,
         models::ReshardBytes bytes)
      : cluster_(cluster), workload_(workload), bytes_(bytes), at_(cluster, workload, job) {}

  /// Rows of AutoHet and Varuna.
  std::string rows(const CaseModel& model, const CaseScenario& scenario,
                   const CaseVariant& variant) const {
    const ir::Plan before = plan_of(scenario.before, workload_);
    const ir::Plan after = plan_of(scenario.after, workload_);
    std::vector<DeviceId> live = at_.all_devices();
    std::erase_if(live, [&](DeviceId device) {
      return std::count(scenario.lost.begin(), scenario.lost.end(), device.value) > 0;
    });
    const models::JobState state =
        at_.state_after(std::make_shared<const ir::Plan>(before), live, true);
    std::vector<StateSource> order = kAutohet;
    if (scenario.keep_running) order.insert(order.begin(), StateSource::own_gpu);
    const Outcome autohet = run(state, after, order, variant);
    const Outcome varuna = run(state, after, kVaruna, variant);
    std::string text;
    for (const auto& [name, outcome] :
         {std::pair{"AutoHet", &autohet}, std::pair{"Varuna", &varuna}}) {
      const auto read = [of = outcome](ir::Location location) {
        const auto found = of->read.find(location);
        return found == of->read.end() ? 0.0 : found->second / 1e9;
      };
      text +=
          fmt::format("{},\"{}\",{},{},{:g},{:.4f},{},{:.3f},{:.3f},{:.2f},{:.2f},{:.2f},{:.3f}\n",
                      scenario.name, scenario.reading, variant.name, model.name,
                      model.state.value / 1e9, first_stage_share(before), name, outcome->time.value,
                      outcome->bound.value, read(ir::Location::cloud), read(ir::Location::nvme),
                      outcome->over_network / 1e9, varuna.time / outcome->time);
    }
    return text;
  }

 private:
  Outcome run(const models::JobState& state, const ir::Plan& to,
              const std::vector<StateSource>& order, const CaseVariant& variant) const {
    Outcome out;
    ir::Plan readers = to;
    if (variant.replica_dedup) readers.pipelines.resize(1);
    const planners::Restore restore =
        planners::plan_restore(at_.input(), state, readers, {1, order, bytes_});
    ORRERY_CHECK(restore.complete(), "{}", restore.witness);
    for (const models::StateTransfer& transfer : restore.transfers) {
      out.read[transfer.from] += transfer.bytes.value;
      if (origin_of(transfer) == Origin::peer) out.over_network += transfer.bytes.value;
    }
    if (variant.overlap) {
      add(restore.transfers, out);
    } else {
      std::map<Origin, std::vector<models::StateTransfer>> parts;
      for (const models::StateTransfer& transfer : restore.transfers) {
        parts[origin_of(transfer)].push_back(transfer);
      }
      for (const auto& [source, part] : parts) add(part, out);
    }
    if (variant.replica_dedup && to.pipelines.size() > 1) {
      models::JobState read = state;
      read.replicas = {{1, ir::Location::peer, std::make_shared<const ir::Plan>(readers), {}, {}}};
      add(planners::plan_restore(at_.input(), read, to, {1, kGpus, bytes_}).transfers, out);
    }
    return out;
  }

  enum class Origin { own, peer, cloud };
  Origin origin_of(const models::StateTransfer& transfer) const {
    if (transfer.from == ir::Location::cloud) return Origin::cloud;
    const bool own =
        cluster_.device(transfer.source).node == cluster_.device(transfer.destination).node;
    return own ? Origin::own : Origin::peer;
  }
  void add(const std::vector<models::StateTransfer>& transfers, Outcome& out) const {
    const RecoveryCase::Move move = at_.move(transfers);
    out.time += move.time;
    out.bound += move.bound;
  }
  /// Share of the state on the devices: a tied matrix at both ends counts twice.
  double first_stage_share(const ir::Plan& plan) const {
    const int end = plan.pipelines.front().stages.front().segments.front().last_block.value;
    double first = 0;
    double all = 0;
    for (int b = 0; b < workload_.size(); ++b) {
      const auto size = static_cast<double>(models::parameters(workload_.block({b})));
      all += size;
      if (b <= end) first += size;
    }
    return first / all;
  }

  const models::Cluster& cluster_;
  const models::Workload& workload_;
  models::ReshardBytes bytes_;
  RecoveryCase at_;
};

void run(const std::string& folder) {
  config::Diagnostics diagnostics;
  const auto file = config::load_file<CaseFile>(in_folder(folder, "recovery.yaml"), diagnostics);
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  diagnostics.raise();
  models::Cluster cluster = models::load_cluster(in_folder(folder, file.cluster.value), library,
                                                 file.cluster.at, diagnostics);
  diagnostics.raise();
  models::Job job;
  job.sequence_length = file.sequence_length;
  job.global_batch = 1;
  fmt::print(
      "scenario,reading,variant,model,state_gb,first_stage_share,system,time_s,bound_s,"
      "cloud_gb,nvme_gb,network_gb,speedup\n");
  for (const CaseModel& model : file.models) {
    const models::Workload workload = models::load_workload(
        in_folder(folder, model.model.value), job, library, model.model.at, diagnostics);
    diagnostics.raise();
    // The nominal state: 14 bytes per parameter of the size that the paper names.
    models::ReshardBytes bytes = models::all_state_bytes(job);
    const double scale = model.state.value / static_cast<double>(models::parameters(workload)) /
                         (bytes.weight + bytes.optimizer());
    bytes = {bytes.weight * scale, bytes.master * scale, bytes.moments * scale};
    for (const CaseVariant& variant : file.variants) {
      cluster.storage->scope = variant.cloud_scope;
      fmt::print("{}", forked_text([&] {
                   const Runner runner(cluster, workload, job, bytes);
                   std::string text;
                   for (const CaseScenario& scenario : file.scenarios) {
                     text += runner.rows(model, scenario, variant);
                   }
                   return text;
                 }));
    }
  }
}

}  // namespace
}  // namespace orrery::experiments

int main(int count, char** values) {
  return orrery::experiments::run_on_folder(count, values, orrery::experiments::run);
}
