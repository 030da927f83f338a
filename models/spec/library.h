/// Names to specifications: GPUs, links, models and clusters that ship as YAML under
/// models/library/, and files of the user's own. All problems go to Diagnostics with positions.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// What the repository knows. Loaded once per process.
struct Library {
  std::string root;  ///< Folder that holds gpus.yaml, links.yaml and the folders below.
  std::map<std::string, GpuType> gpus;
  std::map<std::string, LinkClass> links;
  std::map<std::string, std::string> models;    ///< Name to path.
  std::map<std::string, std::string> clusters;  ///< Name to path.
  std::map<std::string, std::string> profiles;  ///< Name to path.
};

/// $ORRERY_LIBRARY, else the one installed with this program, else that of its source tree.
std::string default_library_root();
Library load_library(const std::string& root, config::Diagnostics& diagnostics);

/// The file that `name` means: one of `entries`, or a path (with a slash, or ending in one of
/// `extensions`), seen from the current directory or else from the file that names it. `kind` is
/// "model" or "cluster".
std::optional<std::string> find_library_file(const std::string& name, const char* kind,
                                             const std::map<std::string, std::string>& entries,
                                             std::span<const char* const> extensions,
                                             const config::Position& asked_at,
                                             config::Diagnostics& diagnostics);

/// `name` is a cluster of the library or a path to a YAML file. `asked_at` is where a user named
/// it.
Cluster load_cluster(const std::string& name, const Library& library, config::Position asked_at,
                     config::Diagnostics& diagnostics);

/// `name` is a model of the library, a path to a model YAML or to a Hugging Face config.json.
ir::ModelShape load_model(const std::string& name, const Library& library,
                          config::Position asked_at, config::Diagnostics& diagnostics);

/// The model at the job's sequence length and dtype. Models that are no transformers (Wide-ResNet)
/// bring their own block list.
Workload load_workload(const std::string& name, const Job& job, const Library& library,
                       config::Position asked_at, config::Diagnostics& diagnostics);

Job load_job(const std::string& path, config::Diagnostics& diagnostics);

ir::Plan load_plan(const std::string& path, config::Diagnostics& diagnostics);
std::string dump_plan(const ir::Plan& plan);  ///< YAML that load_plan reads back equal.
/// Hash of dump_plan without the prediction and the planner's name.
std::string plan_hash(const ir::Plan& plan);

ir::Profile load_profile(const std::string& path, config::Diagnostics& diagnostics);
std::string dump_profile(const ir::Profile& profile);

}  // namespace orrery::models
