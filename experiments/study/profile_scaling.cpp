#include "experiments/study/profile_scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "experiments/study/checks.h"
#include "experiments/study/files.h"
#include "models/base/hash.h"
#include "models/cost/scale_profile.h"

namespace orrery::experiments {
namespace {

std::set<std::string> types_of(const ir::Profile& profile) {
  std::set<std::string> types;
  for (const auto& entry : profile.block_times) types.insert(entry.gpu);
  for (const auto& entry : profile.efficiencies) types.insert(entry.gpu);
  for (const auto& entry : profile.optimizers) types.insert(entry.gpu);
  for (const auto& entry : profile.pass_overheads) types.insert(entry.gpu);
  for (const auto& entry : profile.overlap_losses) types.insert(entry.gpu);
  for (const auto& entry : profile.exposed_collectives) types.insert(entry.gpu);
  for (const auto& entry : profile.memory) types.insert(entry.gpu);
  return types;
}

const models::GpuType* find_type(const std::string& name, const models::Cluster& cluster) {
  for (const models::GpuType& type : cluster.gpu_types) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace

ir::Profile scaled_profile(ir::Profile profile, const config::Located<std::string>& asked,
                           const models::Cluster& cluster, const models::Library& library,
                           config::Diagnostics& diagnostics) {
  std::stringstream pairs(asked.value);
  std::string pair;
  bool any = false;
  while (std::getline(pairs, pair, ',')) {
    any = true;
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size()) {
      diagnostics.add(asked.at, fmt::format("'{}' is no FROM=TO", pair),
                      "for example A100-80GB=H100-80GB");
      continue;
    }
    const std::string from = pair.substr(0, equals), to = pair.substr(equals + 1);
    const std::set<std::string> known = types_of(profile);
    if (from == to) diagnostics.add(asked.at, fmt::format("'{}' to itself", from));
    if (!known.contains(from)) {
      diagnostics.add(asked.at,
                      fmt::format("profile '{}' says nothing about '{}'", profile.name, from),
                      fmt::format("it has {}", fmt::join(known, ", ")));
    }
    const models::GpuType* source = find_type(from, cluster);
    const auto listed = library.gpus.find(from);
    if (source == nullptr && listed != library.gpus.end()) source = &listed->second;
    if (source == nullptr) {
      diagnostics.add(asked.at, fmt::format("no GPU type '{}' in cluster and library", from),
                      "its peak and bandwidth must be known; orrery list gpus");
    }
    const models::GpuType* target = find_type(to, cluster);
    if (target == nullptr) {
      diagnostics.add(asked.at, fmt::format("cluster '{}' has no GPU type '{}'", cluster.name, to));
    }
    if (source == nullptr || target == nullptr || from == to || !known.contains(from)) continue;
    profile = models::scale_profile(profile, *source, *target);
  }
  if (!any) diagnostics.add(asked.at, "nothing to scale", "FROM=TO: names of GPU types");
  return profile;
}

std::optional<std::string> find_profile(const config::Located<std::string>& name,
                                        const std::string& base_folder,
                                        const models::Library& library,
                                        config::Diagnostics& diagnostics) {
  if (const auto known = library.profiles.find(name.value); known != library.profiles.end()) {
    return known->second;
  }
  config::Diagnostics missing;
  if (auto path = find_file(name, "profile", base_folder, missing)) return path;
  std::vector<std::string> names;
  for (const auto& entry : library.profiles) names.push_back(entry.first);
  const config::Problem& problem = missing.problems().front();
  diagnostics.add(problem.at, problem.what,
                  config::suggest(name.value, names, "profiles of the library"));
  return std::nullopt;
}

LoadedProfile load_profile(const std::optional<config::Located<std::string>>& file,
                           const std::optional<config::Located<std::string>>& scale,
                           const std::string& base_folder, const models::Cluster& cluster,
                           const models::Library& library, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  LoadedProfile loaded;
  if (file) {
    if (const auto path = find_profile(*file, base_folder, library, diagnostics)) {
      const std::string text = read_text_file(*path);
      loaded.profile = models::load_profile(*path, diagnostics);
      loaded.hash = content_hash(text);
    }
  }
  if (scale && !file) {
    diagnostics.add(scale->at, "there is no profile to scale");
  } else if (scale && diagnostics.problems().size() == before && !cluster.devices.empty()) {
    loaded.profile =
        scaled_profile(std::move(loaded.profile), *scale, cluster, library, diagnostics);
    loaded.hash = content_hash(loaded.hash + "\nscaled " + scale->value);
  }
  return loaded;
}

}  // namespace orrery::experiments
