#include "experiments/study/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/study/assumptions.h"
#include "experiments/study/checks.h"
#include "experiments/study/files.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "planners/catalog.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Value;

constexpr std::size_t kMostRuns = 100'000;

void complete_run(Value& run, const std::string& folder, config::Diagnostics& problems) {
  for (Value::Entry& entry : run.entries) {
    if (entry.key == "job") complete_job(entry.value, folder, problems);
  }
}

/// Collects the problems of many runs: what an earlier run had too is not repeated, be it at the
/// same place or at another value of the same axis.
class Unique {
 public:
  explicit Unique(config::Diagnostics& out) : out_(out) {}
  void take(const config::Diagnostics& found) {
    std::set<std::string> of_this;
    for (const config::Problem& problem : found.problems()) {
      of_this.insert(problem.what);
      if (!earlier_.contains(problem.what)) out_.add(problem.at, problem.what, problem.hint);
    }
    earlier_.merge(of_this);
  }

 private:
  config::Diagnostics& out_;
  std::set<std::string> earlier_;
};

/// The values that one run takes from the axes.
struct Axis {
  std::string path;
  const Value* value = nullptr;                               ///< Null for a case.
  const std::map<std::string, Value>* alternative = nullptr;  ///< Of axis `case`.
};
using Point = std::vector<Axis>;

constexpr const char* kCase = "case";
constexpr const char* kCaseName = "name";

std::string axis_text(const Value& value) {
  return value.is_scalar() ? value.text : config::to_flow(value);
}
std::string axis_text(const Axis& axis) {
  return axis_text(axis.value != nullptr ? *axis.value : axis.alternative->at(kCaseName));
}
config::Position place(const Axis& axis) {
  return axis.value != nullptr ? axis.value->at : axis.alternative->at(kCaseName).at;
}

/// False if the sweep has no product.
bool find_points(const Manifest& manifest, config::Diagnostics& diagnostics,
                 std::vector<Point>& points) {
  bool good = true;
  for (const auto& [path, values] : manifest.sweep) {
    if (!values.value.empty()) continue;
    diagnostics.add(values.at, fmt::format("axis '{}' has no values", path),
                    "give at least one, or remove the axis");
    good = false;
  }
  if (manifest.seeds.value.empty()) {
    diagnostics.add(manifest.seeds.at, "`seeds` has no values", "as in [0]");
    good = false;
  }
  if (!good) return false;
  points = {{}};
  if (!manifest.cases.empty()) points.clear();
  for (const auto& one : manifest.cases) {
    points.push_back({{.path = kCase, .alternative = &one.value}});
  }
  for (const auto& [path, values] : manifest.sweep) {
    if (points.size() * values.value.size() * manifest.seeds.value.size() > kMostRuns) {
      diagnostics.add(values.at, fmt::format("more than {} runs", kMostRuns),
                      "split the sweep over several manifests");
      return false;
    }
    std::vector<Point> longer;
    for (const Point& point : points) {
      for (const Value& value : values.value) {
        longer.push_back(point);
        longer.back().push_back({.path = path, .value = &value});
      }
    }
    points = std::move(longer);
  }
  return true;
}

bool is_excluded(const Point& point, const std::map<std::string, Value>& exclusion) {
  return std::all_of(exclusion.begin(), exclusion.end(), [&](const auto& wanted) {
    return std::any_of(point.begin(), point.end(), [&](const auto& axis) {
      return axis.path == wanted.first && axis_text(axis) == axis_text(wanted.second);
    });
  });
}

void exclude(const Manifest& manifest, config::Diagnostics& diagnostics,
             std::vector<Point>& points) {
  for (const auto& exclusion : manifest.exclude) {
    const std::size_t removed = std::erase_if(
        points, [&](const Point& point) { return is_excluded(point, exclusion.value); });
    if (removed == 0 || exclusion.value.empty()) {
      diagnostics.add(exclusion.at, "this leaves out no point of the sweep",
                      "give axes of `sweep` and values that they take");
    }
  }
}

/// The run at a point of the sweep, or problems.
PlannedRun make_run(const Manifest& manifest, const Point& point, config::Diagnostics& problems) {
  PlannedRun run;
  Value tree = manifest.run;
  complete_run(tree, manifest.folder, problems);
  if (!problems.empty()) return run;
  for (const Axis& axis : point) {
    if (axis.value != nullptr) {
      tree = config::merge(std::move(tree), axis.path, *axis.value, problems);
    } else {
      for (const auto& [path, value] : *axis.alternative) {
        if (path != kCaseName) tree = config::merge(std::move(tree), path, value, problems);
      }
    }
    run.axes.emplace_back(axis.path, axis_text(axis));
  }
  if (const Value* seed = tree.find("seed")) {
    problems.add(seed->at, "a run takes its seed from `seeds`", "write `seeds: [1, 2, 3]`");
  }
  complete_run(tree, manifest.folder, problems);  // an axis may bring another job
  if (!problems.empty()) return run;
  config::describe_value(tree, run.spec, problems);
  if (run.spec.planner && !run.spec.planner->name.value.empty()) {
    check_planner(*run.spec.planner, problems);
  }
  return run;
}

bool simulation_seed_given(const Manifest& manifest, const Point& point) {
  if (const Value* simulation = manifest.run.find("simulation")) {
    if (simulation->find("seed") != nullptr) return true;
  }
  return std::any_of(point.begin(), point.end(), [](const auto& axis) {
    if (axis.value == nullptr) return axis.alternative->contains("simulation.seed");
    return axis.path == "simulation.seed" ||
           (axis.path == "simulation" && axis.value->find("seed") != nullptr);
  });
}

void check_cases(config::Visitor& v, const Manifest& manifest) {
  if (!v.reading()) return;
  std::set<std::string> names;
  for (const auto& one : manifest.cases) {
    const auto name = one.value.find(kCaseName);
    if (name == one.value.end() || !name->second.is_scalar() || name->second.text.empty()) {
      v.problem("cases", "a case without a `name`", "as in {name: small, model: llama_7b}");
    } else if (!names.insert(name->second.text).second) {
      v.problem("cases", fmt::format("two cases are called '{}'", name->second.text));
    }
  }
  if (!manifest.cases.empty() && manifest.sweep.contains(kCase)) {
    v.problem("sweep", "an axis called 'case' beside `cases`", "give it another name");
  }
}

/// Puts the manifest's run on top of its base's, and adds what that assumes.
void take_base(Manifest& manifest, config::Diagnostics& diagnostics) {
  const std::string path = (fs::path(manifest.folder) / manifest.base).string();
  const auto base = config::load_file<Assumptions>(path, diagnostics);
  if (base.run.is_map()) manifest.run = overlay(base.run, manifest.run);
  for (const Assumption& one : base.assumptions) {
    manifest.assumptions.push_back(fmt::format("{}: {} ({})", one.what, one.value, one.source));
  }
}

}  // namespace

void describe(config::Visitor& v, Manifest& manifest) {
  v.schema("orrery/manifest", 1);
  v.title("Manifest");
  v.doc("The runs of an experiment and the figure that they end in.");
  describe_subject(v, manifest);
  v.optional("base", manifest.base, "file of assumptions, seen from here; its `run` lies below");
  v.required("run", manifest.run, "base of every run");
  v.optional("cases", manifest.cases,
             "alternatives of `run`: maps of dotted paths and their values, each with a `name`");
  v.optional("sweep", manifest.sweep, "dotted paths into `run` and the values that they take");
  v.optional("exclude", manifest.exclude,
             "points of the sweep to leave out, as {axis: value, ...}; other axes are free");
  v.optional("seeds", manifest.seeds, "each point of the sweep runs once with each");
  v.optional("unseeded", manifest.unseeded,
             "planners without random numbers: they run with the first seed only");
  if (v.reading() && v.given("run") && !manifest.run.is_map()) {
    v.problem("run", "expected a map, got " + config::kind_text(manifest.run));
  }
  for (const std::int64_t seed : manifest.seeds.value) v.not_negative("seeds", seed);
  check_cases(v, manifest);
  check_beside(v, "base", manifest.base);
}

Manifest load_manifest(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  Manifest manifest = config::load_file<Manifest>(path, diagnostics);
  manifest.came_from(path);
  if (diagnostics.problems().size() != before) return manifest;
  std::string text = read_text_file(path);
  if (!manifest.base.empty()) {
    text += read_text_file((fs::path(manifest.folder) / manifest.base).string());
    take_base(manifest, diagnostics);
  }
  manifest.hash = content_hash(text);
  for (const config::Located<std::string>& name : manifest.unseeded) {
    if (planners::find_planner(name.value) != nullptr) continue;
    diagnostics.add(name.at, fmt::format("unknown planner '{}'", name.value),
                    planners::unknown_planner_hint(name.value));
  }
  return manifest;
}

std::vector<PlannedRun> expand(const Manifest& manifest, config::Diagnostics& diagnostics) {
  std::vector<PlannedRun> runs;
  std::vector<Point> points;
  if (!find_points(manifest, diagnostics, points)) return runs;
  exclude(manifest, diagnostics, points);
  Unique unique(diagnostics);
  std::map<std::string, std::size_t> seen;
  bool twice = false;
  for (const Point& point : points) {
    config::Diagnostics problems;
    PlannedRun run = make_run(manifest, point, problems);
    unique.take(problems);
    if (!problems.empty()) continue;
    const bool one_seed =
        run.spec.planner &&
        std::any_of(manifest.unseeded.begin(), manifest.unseeded.end(),
                    [&](const auto& name) { return name.value == run.spec.planner->name.value; });
    for (const std::int64_t seed : manifest.seeds.value) {
      run.spec.seed = static_cast<std::uint64_t>(seed);
      if (!simulation_seed_given(manifest, point)) run.spec.simulation.seed = seed;
      run.hash = content_hash(config::dump(run.spec));
      const auto [first, is_new] = seen.emplace(run.hash, runs.size());
      if (!is_new && !twice) {
        diagnostics.add(
            point.empty() ? manifest.seeds.at : place(point.back()),
            fmt::format("runs {} and {} are the same", first->second + 1, runs.size() + 1),
            "an axis or `seeds` has a value twice");
        twice = true;
      }
      runs.push_back(run);
      if (one_seed) break;
    }
  }
  return runs;
}

std::string manifest_schema() {
  using Json = nlohmann::ordered_json;
  Json schema = Json::parse(config::json_schema<Manifest>("Orrery manifest"));
  Json run = Json::parse(config::json_schema<RunSpec>("Run"));
  run.erase("$schema");
  run.erase("required");  // what is missing may come from the sweep
  Json& job = run["properties"]["job"];
  if (job.contains("required")) {
    Json required = Json::array();
    for (const Json& key : job["required"]) {
      if (key != "schema" && key != "global_batch" && key != "sequence_length") {
        required.push_back(key);
      }
    }
    if (required.empty()) {
      job.erase("required");
    } else {
      job["required"] = required;
    }
  }
  run["properties"]["job"] = {{"anyOf", Json::array({Json{{"type", "string"}}, job})}};
  const std::string doc = schema["properties"]["run"].value("description", "");
  run["description"] = doc;
  schema["properties"]["run"] = std::move(run);
  return schema.dump(2) + "\n";
}

std::string manifest_reference() {
  return config::reference_page<Manifest>("Manifest") + "\n" +
         config::reference_page<RunSpec>("Run");
}

}  // namespace orrery::experiments
