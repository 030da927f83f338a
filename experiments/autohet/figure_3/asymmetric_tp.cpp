// What it costs that replicas have different tensor-parallel degrees (AutoHet, II-B, Figure 3): two
// replicas of degree t, simulated; then the second one of degree 2t, simulated, with the gradients
// that must be transposed on top. Prints a CSV.
//
//     asymmetric_tp FOLDER > asymmetric_tp.csv
//
// FOLDER holds asymmetric_tp.yaml and what it names.
//
// The slices of a matrix that is split by its rows lie apart in memory, so that its gradients are
// brought into the other degree's order before the all-reduce and back after it: two passes on the
// replica of degree 2t, as in the paper's example, each reading and writing every element.
//
//     transpose = 2 x (1 + f) x bytes of row-split gradients on a device / memory bandwidth
//
// with f = 1 for a transpose through tiles, which streams, and f = 32 bytes / element for one that
// writes element by element: the smallest access to a GPU's memory is a sector of 32 bytes (CUDA
// C++ Best Practices Guide, coalesced access).
#include <fmt/format.h>

#include <string>
#include <vector>

#include "experiments/recovery/case_study.h"
#include "models/config/document.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "planners/kit/plan_parts.h"
#include "sim/iteration/evaluator.h"

namespace orrery::experiments {

struct AsymmetricModel {
  std::string name;
  config::Located<std::string> model;
  int tensor_parallel = 1;
};

struct AsymmetricFile {
  config::Located<std::string> cluster;
  std::int64_t sequence_length = 0;
  std::vector<int> first_devices;
  std::vector<int> micro_batches;
  std::vector<AsymmetricModel> models;
};

void describe(config::Visitor& v, AsymmetricModel& model) {
  v.required("name", model.name, "in tables and figures");
  v.required("model", model.model, "of the library, or a file beside this one");
  v.required("tensor_parallel", model.tensor_parallel, "degree of both replicas when symmetric");
  v.at_least("tensor_parallel", model.tensor_parallel, 1);
}

void describe(config::Visitor& v, AsymmetricFile& file) {
  v.schema("orrery/autohet_asymmetric_tp", 1);
  v.required("cluster", file.cluster, "of the library, or a file beside this one");
  v.required("sequence_length", file.sequence_length, "tokens");
  v.required("first_devices", file.first_devices, "of each replica; the second may grow");
  v.required("micro_batches", file.micro_batches, "of one sequence, in each replica");
  v.required("models", file.models, "");
  v.at_least("sequence_length", file.sequence_length, std::int64_t{1});
  if (!v.reading() || !v.good()) return;
  if (file.first_devices.size() != 2) v.problem("first_devices", "one for each of two replicas");
  for (const int count : file.micro_batches) {
    if (count < 1) v.problem("micro_batches", "must be 1 or more");
  }
}

namespace {

constexpr double kSector = 32;  // bytes

/// Whether tensor parallelism splits the rows of this matrix (models/spec/workload.cpp).
bool split_by_rows(const models::Parameter& parameter) {
  return parameter.name == "attention.output" || parameter.name == "mlp.down";
}

/// Replicas of these degrees, one stage each.
ir::Plan plan_of(const std::vector<int>& first_devices, const std::vector<int>& degrees,
                 int micro_batches, const models::Workload& workload) {
  ir::Plan plan;
  for (std::size_t replica = 0; replica < degrees.size(); ++replica) {
    ir::Group group;
    group.tensor_parallel = degrees[replica];
    for (int i = 0; i < degrees[replica]; ++i) {
      group.devices.push_back({first_devices.at(replica) + i});
    }
    ir::Segment segment =
        planners::segment_of_layers(workload, 0, planners::count_layers(workload));
    segment.groups = {group};
    ir::Pipeline pipeline;
    pipeline.micro_batches = micro_batches;
    pipeline.stages.push_back({{segment}});
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

/// Bytes of gradients on a device of a group of this degree that lie apart.
double row_split_bytes(const models::Workload& workload, const models::Job& job, int degree) {
  double elements = 0;
  for (const models::Block& block : workload.blocks) {
    for (const models::Parameter& parameter : block.parameters) {
      if (split_by_rows(parameter)) elements += static_cast<double>(parameter.elements);
    }
  }
  return elements * job.state_bytes.gradient / degree;
}

/// Both passes; `written` is the bytes that writing one byte costs.
double transpose_seconds(double bytes, double written, const models::GpuType& gpu) {
  return 2 * (1 + written) * bytes / (gpu.memory_bandwidth.value * gpu.memory_efficiency);
}

class AsymmetricCase {
 public:
  AsymmetricCase(const models::Cluster& cluster, const models::Workload& workload,
                 const models::Job& job)
      : topology_(cluster),
        simulator_(cluster, topology_),
        evaluator_(simulator_, workload, job, profile_) {}
  models::Evaluation evaluate(const ir::Plan& plan) const { return evaluator_.evaluate(plan); }

 private:
  models::Topology topology_;
  ir::Profile profile_;
  sim::IterationSimulator simulator_;
  sim::SimulatorEvaluator evaluator_;
};

/// One row.
std::string row(const AsymmetricFile& file, const AsymmetricModel& model, int micro_batches,
                const models::Cluster& cluster, const models::Workload& workload,
                const models::Job& job) {
  const int degree = model.tensor_parallel;
  const AsymmetricCase at(cluster, workload, job);
  const models::Evaluation symmetric =
      at.evaluate(plan_of(file.first_devices, {degree, degree}, micro_batches, workload));
  const models::Evaluation asymmetric =
      at.evaluate(plan_of(file.first_devices, {degree, 2 * degree}, micro_batches, workload));
  const models::GpuType& gpu = cluster.gpu({file.first_devices.at(1)});
  const double bytes = row_split_bytes(workload, job, 2 * degree);
  return fmt::format("{},{},{},{:.6f},{:.6f},{:.4f},{:.6f},{:.6f},{}\n", model.name, degree,
                     micro_batches, symmetric.iteration_time.value, asymmetric.iteration_time.value,
                     bytes / 1e9, transpose_seconds(bytes, 1, gpu),
                     transpose_seconds(bytes, kSector / job.state_bytes.gradient, gpu),
                     symmetric.memory.fits() ? "true" : "false");
}

void run(const std::string& folder) {
  config::Diagnostics diagnostics;
  const auto file =
      config::load_file<AsymmetricFile>(in_folder(folder, "asymmetric_tp.yaml"), diagnostics);
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  diagnostics.raise();
  const models::Cluster cluster = models::load_cluster(in_folder(folder, file.cluster.value),
                                                       library, file.cluster.at, diagnostics);
  diagnostics.raise();
  fmt::print(
      "model,tensor_parallel,micro_batches,symmetric_s,asymmetric_s,row_split_gb,"
      "transpose_tiled_s,transpose_by_element_s,fits\n");
  for (const AsymmetricModel& model : file.models) {
    for (const int micro_batches : file.micro_batches) {
      models::Job job;
      job.sequence_length = file.sequence_length;
      job.global_batch = 2 * micro_batches;
      const models::Workload workload = models::load_workload(
          in_folder(folder, model.model.value), job, library, model.model.at, diagnostics);
      diagnostics.raise();
      fmt::print("{}", forked_text([&] {
                   return row(file, model, micro_batches, cluster, workload, job);
                 }));
    }
  }
}

}  // namespace
}  // namespace orrery::experiments

int main(int count, char** values) {
  return orrery::experiments::run_on_folder(count, values, orrery::experiments::run);
}
