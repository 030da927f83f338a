#include "models/spec/plan_file.h"

#include <filesystem>
#include <utility>

#include "models/config/document.h"
#include "models/config/sparse.h"
#include "models/spec/plan_yaml.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

/// As find_library_file() tells them from names, which may have points in them.
bool is_path(const fs::path& name) {
  const fs::path ending = name.extension();
  return name.has_parent_path() || ending == ".yaml" || ending == ".yml" || ending == ".json";
}

template <class Moved>
void move_paths(PlanOrigin& origin, Moved moved) {
  const auto move = [&](std::string& name) {
    if (is_path(name)) name = moved(fs::path(name)).string();
  };
  move(origin.cluster.value);
  move(origin.model.value);
  if (origin.profile) move(origin.profile->value);
}

}  // namespace

void describe(config::Visitor& v, PlanOrigin& origin) {
  v.title("Made for");
  v.doc("What the planner was given: names of the library, or paths seen from the plan's folder.");
  v.required("cluster", origin.cluster, "cluster of the library, or path to a cluster file");
  v.required("model", origin.model, "model of the library, or path to a model file or config.json");
  v.required("job", origin.job, "batch, sequence length, numbers, and what the planner might use");
  v.optional("profile", origin.profile, "of the library, or path to a file");
  v.optional("scale_profile", origin.scale_profile, "FROM=TO: GPU types");
}

void describe(config::Visitor& v, PlanFile& file) {
  describe(v, file.plan);
  v.optional("made_for", file.made_for,
             "what commands that take this plan need not be told: cluster, model, job, profile");
}

PlanFile load_plan_file(const std::string& path, config::Diagnostics& diagnostics) {
  auto file = config::load_file<PlanFile>(path, diagnostics);
  if (file.made_for) {
    const fs::path folder = fs::path(path).parent_path();
    move_paths(*file.made_for,
               [&](const fs::path& named) { return (folder / named).lexically_normal(); });
  }
  return file;
}

std::string dump_plan_file(const PlanFile& file, const std::string& path) {
  PlanFile written = file;
  if (written.made_for) {
    const fs::path folder = fs::weakly_canonical(fs::absolute(path).parent_path());
    move_paths(*written.made_for, [&](const fs::path& named) {
      return fs::weakly_canonical(fs::absolute(named)).lexically_relative(folder);
    });
  }
  return config::to_yaml(config::sparse(written, {"schedule"}));
}

}  // namespace orrery::models
