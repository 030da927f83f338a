#include "experiments/study/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "experiments/study/assumptions.h"
#include "experiments/study/init.h"
#include "experiments/study/jobs.h"
#include "experiments/study/run_study.h"
#include "experiments/study/study.h"
#include "models/base/text.h"
#include "models/config/document.h"
#include "models/ir/model_shape.h"
#include "models/spec/lengths.h"
#include "models/spec/step_plan.h"
#include "traces/generate/settings.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

/// Files of one schema, `orrery/NAME/VERSION`.
struct FileKind {
  std::string name;
  /// Adds what is wrong with a file; says what is in it, in words or not at all.
  std::function<std::string(const std::string& path, const models::Library&, config::Diagnostics&)>
      check;
};

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

std::string check_cluster(const std::string& path, const models::Library& library, const Call& call,
                          Diagnostics& diagnostics) {
  const models::Cluster cluster = models::load_cluster(path, library, {path, 0, 0}, diagnostics);
  if (diagnostics.empty()) {
    for (const std::string& warning : implausible(cluster)) {
      call.note(fmt::format("{}: {}", path, warning));
    }
  }
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
  JobSettings job = args.job;
  const ReadPlan read(path);
  take_origin(read, job);
  if (!job.cluster && !job.model) {
    const ir::Plan& plan = read.file.plan;
    read.report(diagnostics);
    if (!diagnostics.empty()) return "";
    return fmt::format(
        "{} on {} GPUs; not checked against a cluster and a model: add "
        "--cluster, --model and --sequence-length",
        counted(plan.pipelines.size(), "pipeline"), ir::devices_of(plan).size());
  }
  const RunSpec spec = make_spec(job, {}, &read, diagnostics);
  if (!diagnostics.empty()) return "";
  load_run(spec, "", library, diagnostics, &read);
  return fmt::format("fits {} and {}", spec.cluster.value, spec.model.value);
}

std::string check_jobs(const std::string& path, const models::Library& library,
                       Diagnostics& diagnostics) {
  const Jobs jobs = load_jobs(path, diagnostics);
  if (diagnostics.empty()) load_job_runs(jobs, {}, {}, library, diagnostics);
  return fmt::format("{} on {}", counted(jobs.jobs.size(), "job"), jobs.cluster.value);
}

std::string check_study_file(const std::string& path, const models::Library& library,
                             Diagnostics& diagnostics) {
  const Study study = load_study(path, diagnostics);
  return fmt::format("{}, {}", study.command.value,
                     counted(check_study(study, library, diagnostics), "run"));
}

/// A file that only has to be read.
template <class T>
FileKind readable(const char* name, T (*load)(const std::string&, Diagnostics&)) {
  return {name, [load](const std::string& path, const models::Library&, Diagnostics& diagnostics) {
            load(path, diagnostics);
            return std::string();
          }};
}

std::vector<FileKind> file_kinds(const ValidateSettings& settings, const Call& call) {
  using models::Library;
  std::vector<FileKind> kinds = {
      readable("assumptions", config::load_file<Assumptions>),
      {"cluster",
       [&call](const std::string& path, const Library& library, Diagnostics& diagnostics) {
         return check_cluster(path, library, call, diagnostics);
       }},
      readable("job", models::load_job),
      {"jobs", check_jobs},
      {"lengths",
       [](const std::string& path, const Library&, Diagnostics& diagnostics) {
         models::load_lengths(path, "", {path, 0, 0}, diagnostics);
         return std::string();
       }},
      {"model", check_model},
      {"plan",
       [&settings](const std::string& path, const Library& library, Diagnostics& diagnostics) {
         return check_plan(path, settings, library, diagnostics);
       }},
      readable("profile", models::load_profile),
      readable("step_plan", models::load_step_plan),
      {"study", check_study_file},
      readable("trace_generator", config::load_file<traces::TraceGenerator>)};
  for (const char* name : {"gpus", "links"}) {
    kinds.push_back({name, [name](const std::string& path, const Library&, Diagnostics& found) {
                       check_library_file(path, name, found);
                       return std::string();
                     }});
  }
  std::sort(kinds.begin(), kinds.end(),
            [](const FileKind& a, const FileKind& b) { return a.name < b.name; });
  return kinds;
}

/// The kind that the line `schema: orrery/KIND/VERSION` names; null after a problem.
const FileKind* kind_of(const std::string& path, const std::vector<FileKind>& kinds,
                        Diagnostics& diagnostics) {
  const config::Value tree = config::load_value(path, diagnostics);
  if (!diagnostics.empty()) return nullptr;
  const auto find = [&](const std::string& name) -> const FileKind* {
    const auto found = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const FileKind& kind) { return kind.name == name; });
    return found == kinds.end() ? nullptr : &*found;
  };
  const config::Value* schema = tree.find("schema");
  if (schema == nullptr) {
    if (fs::path(path).extension() == ".json") return find("model");
    diagnostics.add({path, 1, 1}, "no `schema` line: it tells what kind of file this is",
                    "for example schema: orrery/cluster/1");
    return nullptr;
  }
  const std::string prefix = "orrery/";
  const std::string& text = schema->text;
  const std::string name =
      text.rfind(prefix, 0) == 0
          ? text.substr(prefix.size(), text.find('/', prefix.size()) - prefix.size())
          : "";
  const FileKind* kind = find(name);
  if (kind != nullptr) return kind;
  if (const std::string hint = former_schema_hint(text); !hint.empty()) {
    diagnostics.add(schema->at, fmt::format("'{}' is a study now", text), hint);
    return nullptr;
  }
  std::vector<std::string> names;
  for (const FileKind& each : kinds) names.push_back(each.name);
  diagnostics.add(schema->at, fmt::format("unknown schema '{}'", text),
                  name.empty() ? "as in orrery/cluster/1" : config::suggest(name, names, "kinds"));
  return nullptr;
}

}  // namespace

void describe(config::Visitor& v, ValidateSettings& settings) {
  v.required("file", settings.files, "clusters, models, jobs, plans, profiles, studies",
             {.positional = true});
  describe(v, settings.job);
}

void describe(config::Visitor& v, CheckedFile& file) {
  v.title("Checked file");
  v.required("path", file.path, "as given");
  v.required("content", file.content, "kind, and what is in it; empty where there are problems");
  v.required("problems", file.problems, "what is wrong");
}

void describe(config::Visitor& v, ValidateResult& result) {
  v.title("Checked files");
  v.required("files", result.files, "in their order");
}

int exit_status(const ValidateResult& result) {
  const bool good = std::all_of(result.files.begin(), result.files.end(),
                                [](const CheckedFile& file) { return file.problems.empty(); });
  return good ? 0 : 2;
}

ValidateResult validate(const ValidateSettings& settings, const Call& call) {
  Diagnostics of_library;
  const models::Library library = open_library(of_library);
  of_library.raise();
  return validate_files(settings, library, call);
}

ValidateResult validate_files(const ValidateSettings& settings, const models::Library& library,
                              const Call& call) {
  const std::vector<FileKind> kinds = file_kinds(settings, call);
  ValidateResult result;
  for (const std::string& path : settings.files) {
    Diagnostics diagnostics;
    CheckedFile file{path, "", {}};
    if (const FileKind* kind = kind_of(path, kinds, diagnostics)) {
      const std::string about = kind->check(path, library, diagnostics);
      if (diagnostics.empty())
        file.content = about.empty() ? kind->name : kind->name + ", " + about;
    }
    file.problems = diagnostics.problems();
    result.files.push_back(std::move(file));
  }
  return result;
}

}  // namespace orrery::experiments

namespace orrery::config {

void describe(Visitor& v, Problem& problem) {
  v.title("Problem");
  v.required("file", problem.at.file, "or setting");
  v.required("line", problem.at.line, "from 1; 0: unknown");
  v.required("column", problem.at.column, "from 1, in bytes; 0: unknown");
  v.required("what", problem.what, "is wrong");
  v.required("hint", problem.hint, "what to do about it; may be empty");
}

}  // namespace orrery::config
