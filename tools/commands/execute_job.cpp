#include "tools/commands/execute_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "models/config/document.h"
#include "models/config/value.h"
#include "models/cost/device_share.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "tools/cli/flags.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {
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
    const ir::Plan plan = models::load_plan(file, ignored);
    if (!ignored.empty()) return {};
    if (plan.workload_hash.empty()) continue;
    const models::Job plain = make_job(job, file, ignored);
    if (!ignored.empty()) return {};
    const models::Workload workload =
        models::load_workload(*job.model, plain, library, {}, ignored);
    if (!ignored.empty()) return {};
    if (workload.hash == plan.workload_hash) return file;
  }
  return {};
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

void check_dtype(const ExecuteSettings& args, Precision precision,
                 config::Diagnostics& diagnostics) {
  const auto given = args.job.changes.find("dtype");
  if (given == args.job.changes.end()) return;
  const std::string& dtype = given->second.text;
  const std::string own = executor::name_of(precision);
  if (dtype == own) return;
  const auto names = enum_names(ir::Dtype{});
  const bool known =
      std::any_of(names.begin(), names.end(), [&](const auto& one) { return dtype == one.second; });
  if (!known) return;  // Reported where the job is read.
  diagnostics.add(at_flag("--dtype"), fmt::format("{}, where the ranks compute in {}", dtype, own),
                  "leave it out: it follows --precision");
}

std::string take_run_inputs(ExecuteSettings& args) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(args.plan).parent_path();
  const std::string file = (folder / "run.yaml").string();
  std::error_code error;
  if (args.plan.empty() || !fs::exists(file, error)) return {};
  config::Diagnostics diagnostics;
  const config::Value tree = config::load_value(file, diagnostics);
  const config::Value* schema = tree.is_map() ? tree.find("schema") : nullptr;
  if (schema == nullptr || !schema->text.starts_with("orrery/run_inputs/")) return {};
  const auto inputs = config::load_file<RunInputs>(file, diagnostics);
  diagnostics.raise();
  std::vector<std::string> taken;
  const auto take = [&](Text& flag, const std::string& name, const char* what) {
    if (flag || name.empty()) return;
    flag = (folder / name).string();
    taken.emplace_back(what);
  };
  if (!args.job.cluster) take(args.job.profile, inputs.profile, "profile");
  take(args.job.cluster, inputs.cluster, "cluster");
  take(args.job.model, inputs.model, "model");
  if (!args.job.gives("sequence_length")) take(args.job.job, inputs.job, "job");
  if (taken.empty()) return {};
  return fmt::format("{} of the run that {} describes", fmt::join(taken, ", "), file);
}

void ExecutedJob::complete(models::Job& job) const {
  if (held) job.state_bytes = held_bytes(precision, job.optimizer);
}

ExecutedJob executed_job(const ExecuteSettings& args, Precision precision,
                         const std::vector<std::string>& plans) {
  ExecutedJob out{args.job, true, precision, {}};
  const std::string own = executor::name_of(precision);
  const config::Value* given = nullptr;
  config::Value tree;
  if (args.job.job) {
    config::Diagnostics ignored;  // What is wrong with the file is reported where the job is read.
    tree = config::load_value(*args.job.job, ignored);
    if (tree.is_map()) {
      given = tree.find("dtype");
      out.held = tree.find("state_bytes") == nullptr;
    }
  }
  if (args.job.gives("dtype")) return out;
  if (given != nullptr) {
    if (given->text != own) {
      out.note =
          fmt::format("the job file's dtype {} is kept, the ranks compute in {}", given->text, own);
    }
    return out;
  }
  const std::string plain = ir::name_of(models::Job{}.dtype);
  if (own == plain) return out;
  const std::string stays = fmt::format("the job stays {}, the ranks compute in {}", plain, own);
  if (const std::string gpu = lacking(args.job.cluster, dtype_of(precision)); !gpu.empty()) {
    out.note = fmt::format("{} of the cluster file has no {}: {}", gpu, own, stays);
  } else if (const std::string plan = made_for_default(args.job, plans); !plan.empty()) {
    out.note =
        fmt::format("{} was made for {}: {} (make plans with --dtype {})", plan, plain, stays, own);
  } else {
    out.args.changes["dtype"] = config::Value::scalar(own);
  }
  return out;
}

}  // namespace orrery::tools
