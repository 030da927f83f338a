/// orrery validate: reads files as the other commands do and names every problem.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "experiments/study/assumptions.h"
#include "experiments/study/manifest.h"
#include "experiments/study/mixed_length.h"
#include "experiments/study/replay.h"
#include "experiments/study/runner.h"
#include "experiments/study/steps.h"
#include "models/config/document.h"
#include "models/ir/model_shape.h"
#include "models/spec/lengths.h"
#include "models/spec/step_plan.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"
#include "tools/commands/twin_manifest.h"
#include "traces/generate/settings.h"

namespace orrery::tools {
namespace {

struct ValidateSettings {
  JobSettings job;
  std::vector<std::string> files;
};

void describe(config::Visitor& v, ValidateSettings& settings) {
  v.required("file", settings.files, "clusters, models, jobs, plans, profiles, manifests, studies",
             {.positional = true});
  describe(v, settings.job, BatchDefault::of_the_plan);
}

namespace fs = std::filesystem;
using config::Diagnostics;

const std::vector<std::string>& kinds() {
  static const std::vector<std::string> kKinds = {
      "assumptions",     "cluster", "gpus", "job",     "lengths", "links",     "manifest",
      "mixed_length",    "model",   "plan", "profile", "replay",  "step_plan", "steps",
      "trace_generator", "twin"};
  return kKinds;
}

/// The kind that the line `schema: orrery/KIND/VERSION` names; "" after a problem.
std::string file_kind(const std::string& path, Diagnostics& diagnostics) {
  const config::Value tree = config::load_value(path, diagnostics);
  if (!diagnostics.empty()) return "";
  const config::Value* schema = tree.find("schema");
  if (schema == nullptr) {
    if (fs::path(path).extension() == ".json") return "model";
    diagnostics.add({path, 1, 1}, "no `schema` line: it tells what kind of file this is",
                    "for example schema: orrery/cluster/1");
    return "";
  }
  const std::string prefix = "orrery/";
  const std::string& text = schema->text;
  std::string kind = text.rfind(prefix, 0) == 0
                         ? text.substr(prefix.size(), text.find('/', prefix.size()) - prefix.size())
                         : "";
  if (std::find(kinds().begin(), kinds().end(), kind) != kinds().end()) return kind;
  diagnostics.add(
      schema->at, fmt::format("unknown schema '{}'", text),
      kind.empty() ? "as in orrery/cluster/1" : config::suggest(kind, kinds(), "kinds"));
  return "";
}

/// Library files are read by folder; only the problems of this file count.
void check_library_file(const std::string& path, const std::string& kind, Diagnostics& out) {
  const fs::path file = path;
  if (file.filename() != kind + ".yaml") {
    out.add({path, 0, 0}, fmt::format("a library file of {} is called {}.yaml", kind, kind));
    return;
  }
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  Diagnostics all;
  models::load_library(folder, all);
  for (const config::Problem& problem : all.problems()) {
    std::error_code error;
    if (!fs::equivalent(problem.at.file, file, error)) continue;
    out.add(problem.at, problem.what, problem.hint);
  }
}

std::string check_cluster(const std::string& path, const models::Library& library,
                          Diagnostics& diagnostics) {
  const models::Cluster cluster = models::load_cluster(path, library, {path, 0, 0}, diagnostics);
  return fmt::format("{} GPUs in {} nodes", cluster.size(), cluster.nodes.size());
}

std::string check_model(const std::string& path, const models::Library& library,
                        Diagnostics& diagnostics) {
  models::Job job;
  job.global_batch = 1;
  job.sequence_length = 1;
  const models::Workload workload =
      models::load_workload(path, job, library, {path, 0, 0}, diagnostics);
  if (!diagnostics.empty()) return "";
  return fmt::format("{} blocks, {:.2f} billion parameters", workload.size(),
                     static_cast<double>(models::parameters(workload)) / 1e9);
}

std::string check_plan(const std::string& path, const ValidateSettings& args,
                       const models::Library& library, Diagnostics& diagnostics) {
  if (!args.job.cluster && !args.job.model) {
    const ir::Plan plan = models::load_plan(path, diagnostics);
    return fmt::format(
        "{} on {} GPUs; not checked against a cluster and a model: add "
        "--cluster, --model and --sequence-length",
        counted(plan.pipelines.size(), "pipeline"), ir::devices_of(plan).size());
  }
  const experiments::RunSpec spec = make_spec(args.job, {}, path, diagnostics);
  if (!diagnostics.empty()) return "";
  experiments::load_run(spec, "", library, diagnostics);
  return fmt::format("fits {} and {}", spec.cluster.value, spec.model.value);
}

std::string check_manifest(const std::string& path, const models::Library& library,
                           Diagnostics& diagnostics) {
  const experiments::Manifest manifest = experiments::load_manifest(path, diagnostics);
  return fmt::format("{} runs", experiments::check_runs(manifest, library, diagnostics));
}

std::string check_study(const std::string& path, const models::Library& library,
                        Diagnostics& diagnostics) {
  const experiments::ReplayStudy study = experiments::load_replay_study(path, diagnostics);
  return fmt::format("{} runs", experiments::check_replay_study(study, library, diagnostics));
}

/// Kind and content in words, if there are no problems.
std::string check_file(const std::string& path, const ValidateSettings& args,
                       const models::Library& library, Diagnostics& diagnostics) {
  const std::string kind = file_kind(path, diagnostics);
  if (kind.empty()) return "";
  std::string about;
  if (kind == "cluster") about = check_cluster(path, library, diagnostics);
  if (kind == "model") about = check_model(path, library, diagnostics);
  if (kind == "plan") about = check_plan(path, args, library, diagnostics);
  if (kind == "manifest") about = check_manifest(path, library, diagnostics);
  if (kind == "replay") about = check_study(path, library, diagnostics);
  if (kind == "job") models::load_job(path, diagnostics);
  if (kind == "assumptions") config::load_file<experiments::Assumptions>(path, diagnostics);
  if (kind == "steps") {
    const experiments::StepsFile file = experiments::load_steps(path, diagnostics);
    about = counted(file.steps.size(), "step");
  }
  if (kind == "twin") config::load_file<TwinManifest>(path, diagnostics);
  if (kind == "profile") models::load_profile(path, diagnostics);
  if (kind == "lengths") models::load_lengths(path, "", {path, 0, 0}, diagnostics);
  if (kind == "mixed_length") {
    auto file = config::load_file<experiments::MixedLengthFile>(path, diagnostics);
    if (diagnostics.empty()) {
      experiments::load_mixed_length(std::move(file), fs::path(path).parent_path().string(), 0,
                                     library, diagnostics);
    }
  }
  if (kind == "step_plan") models::load_step_plan(path, diagnostics);
  if (kind == "trace_generator") config::load_file<traces::TraceGenerator>(path, diagnostics);
  if (kind == "gpus" || kind == "links") check_library_file(path, kind, diagnostics);
  return about.empty() ? kind : kind + ", " + about;
}

}  // namespace

namespace {

int run(const ValidateSettings& args) {
  Diagnostics of_library;
  const models::Library library = open_library(of_library);
  of_library.raise();
  Diagnostics all;
  for (const std::string& path : args.files) {
    Diagnostics diagnostics;
    const std::string about = check_file(path, args, library, diagnostics);
    if (diagnostics.empty()) {
      print(fmt::format("{}: {} ({})\n", path, good("ok"), about));
    } else {
      for (const config::Problem& p : diagnostics.problems()) all.add(p.at, p.what, p.hint);
    }
  }
  flush();
  all.raise();
  return 0;
}

}  // namespace

extern const Command kValidate;
const Command kValidate = command<ValidateSettings, run>(
    "validate", "Check files: every problem with its place",
    "validate models/library/clusters/hexiscale_240.yaml models/library/gpus.yaml");

}  // namespace orrery::tools
