#include "experiments/execution/rank_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "executor/engine/worker.h"
#include "executor/model/shard.h"
#include "experiments/execution/run_inputs.h"
#include "models/config/document.h"
#include "models/cost/device_share.h"
#include "models/ir/names.h"
#include "models/lower/lower.h"
#include "models/spec/library.h"

namespace orrery::experiments {
namespace {

using executor::Precision;

/// The first GPU type of the cluster that has neither this dtype nor a substitute; "": all have.
/// A cluster that cannot be loaded is reported by who needs it.
std::string lacking(const Text& cluster, ir::Dtype dtype) {
  config::Diagnostics ignored;
  const models::Library library = open_library(ignored);
  if (!ignored.empty() || !cluster) return {};
  const models::Cluster loaded = models::load_cluster(*cluster, library, {}, ignored);
  if (!ignored.empty()) return {};
  for (const models::GpuType& gpu : loaded.gpu_types) {
    if (!models::supported_dtype(gpu, dtype)) return gpu.name;
  }
  return {};
}

/// The first plan that was made for this very job with the default dtype; "": none says so. What
/// cannot be loaded is reported by who needs it.
std::string made_for_default(const JobSettings& job, const std::vector<std::string>& plans) {
  config::Diagnostics ignored;
  const models::Library library = open_library(ignored);
  if (!ignored.empty() || !job.model) return {};
  for (const std::string& file : plans) {
    const ReadPlan read(file);
    if (!read.problems.empty()) return {};
    const ir::Plan& plan = read.file.plan;
    if (plan.workload_hash.empty()) continue;
    const models::Job plain = make_job(job, &read, ignored);
    if (!ignored.empty()) return {};
    const models::Workload workload =
        models::load_workload(*job.model, plain, library, {}, ignored);
    if (!ignored.empty()) return {};
    if (workload.hash == plan.workload_hash) return file;
  }
  return {};
}

/// Lines of a text, joined: "a:\n  b\n" is "a: b", others by semicolons.
std::string one_line(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    if (!out.empty()) out += out.back() == ':' ? " " : "; ";
    out += line.substr(first, line.find_last_not_of(' ') + 1 - first);
  }
  return out;
}

}  // namespace

ir::Dtype dtype_of(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return ir::Dtype::fp64;
    case Precision::bf16:
      return ir::Dtype::bf16;
    case Precision::fp32:
      break;
  }
  return ir::Dtype::fp32;
}

models::StateBytes held_bytes(Precision precision, ir::Optimizer optimizer) {
  const bool mixed = precision == Precision::bf16;
  const double weight = ir::size_of(dtype_of(precision)).value;
  const double wide = mixed ? ir::size_of(ir::Dtype::fp32).value : weight;
  models::StateBytes bytes;
  bytes.weight = weight;
  bytes.gradient = wide;
  bytes.master = mixed ? wide : 0;
  bytes.moments = optimizer == ir::Optimizer::adam ? 2 * wide : 0;
  return bytes;
}

std::string take_run_inputs(const std::string& plan, JobSettings& job) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(plan).parent_path();
  const std::string file = (folder / "run.yaml").string();
  std::error_code error;
  if (plan.empty()) return {};
  if (const std::string taken = take_origin(ReadPlan(plan), job); !taken.empty()) {
    return fmt::format("{} that {} was made for", taken, plan);
  }
  if (!fs::exists(file, error)) return {};
  config::Diagnostics diagnostics;
  const config::Value tree = config::load_value(file, diagnostics);
  const config::Value* schema = tree.is_map() ? tree.find("schema") : nullptr;
  if (schema == nullptr || !schema->text.starts_with("orrery/run_inputs/")) return {};
  const auto inputs = config::load_file<RunInputs>(file, diagnostics);
  diagnostics.raise();
  std::vector<std::string> taken;
  const auto take = [&](Text& setting, const std::string& name, const char* what) {
    if (setting || name.empty()) return;
    setting = (folder / name).string();
    taken.emplace_back(what);
  };
  if (!job.cluster) take(job.profile, inputs.profile, "profile");
  take(job.cluster, inputs.cluster, "cluster");
  take(job.model, inputs.model, "model");
  if (!job.gives("sequence_length")) take(job.job, inputs.job, "job");
  if (taken.empty()) return {};
  return fmt::format("{} of the run that {} describes", fmt::join(taken, ", "), file);
}

void RankJob::complete(models::Job& job) const {
  if (held) job.state_bytes = held_bytes(precision, job.optimizer);
}

RankJob rank_job(const JobSettings& job, Precision precision,
                 const std::vector<std::string>& plans) {
  RankJob out{job, true, precision, {}};
  const std::string own = executor::name_of(precision);
  const config::Value* of_file = nullptr;
  config::Value tree;
  if (job.job) {
    config::Diagnostics ignored;  // What is wrong with the file is reported where the job is read.
    tree = config::load_value(*job.job, ignored);
  } else if (job.of_plan) {
    tree = *job.of_plan;
  }
  if (tree.is_map()) {
    of_file = tree.find("dtype");
    out.held = tree.find("state_bytes") == nullptr;
  }
  if (job.gives("dtype")) return out;
  if (of_file != nullptr) {
    if (of_file->text != own) {
      out.note =
          fmt::format("the job's dtype {} is kept, the ranks compute in {}", of_file->text, own);
    }
    return out;
  }
  const std::string plain = ir::name_of(models::Job{}.dtype);
  if (own == plain) return out;
  const std::string stays = fmt::format("the job stays {}, the ranks compute in {}", plain, own);
  if (const std::string gpu = lacking(job.cluster, dtype_of(precision)); !gpu.empty()) {
    out.note = fmt::format("{} of the cluster file has no {}: {}", gpu, own, stays);
  } else if (const std::string plan = made_for_default(job, plans); !plan.empty()) {
    out.note =
        fmt::format("{} was made for {}: {} (make plans with --dtype {})", plan, plain, stays, own);
  } else {
    out.settings.changes["dtype"] = config::Value::scalar(own);
  }
  return out;
}

std::string no_plan_text(const RunReport& report) {
  if (!report.infeasible) return "no plan";
  const models::Infeasible& why = *report.infeasible;
  return one_line(
      fmt::format("no plan ({}){}", why.constraint,
                  why.witness.empty() ? "" : fmt::format(": for example {}", why.witness)));
}

ExecutableProgram lower_for_ranks(const LoadedRun& run, const ir::Plan& plan, std::uint64_t seed) {
  ExecutableProgram out;
  for (const models::PlanDefect& defect : models::find_unsupported(plan)) {
    out.problems.push_back(fmt::format("{}: {}", defect.path, defect.what));
  }
  if (!out.problems.empty()) return out;
  if (!run.spec.job.hidden_collectives.empty()) {
    out.problems.emplace_back(
        "the executor cannot run collectives beside the kernels of a pass (hidden_collectives of "
        "the job)");
    return out;
  }
  models::LowerOptions options;
  options.collapsed = false;
  options.seed = seed;
  out.program = models::lower(plan, run.cluster, run.workload, run.spec.job, options);
  for (const auto& found :
       {executor::find_unsupported(out.program), executor::find_unrunnable(out.program)}) {
    for (const std::string& what : found) {
      out.problems.push_back("the executor cannot run " + what);
    }
  }
  return out;
}

}  // namespace orrery::experiments
