/// Files of other systems as ours: profiles, measurements, topologies, recorded runs. What `orrery
/// import` does.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/exports.h"

namespace orrery::experiments {

struct ImportSettings {
  std::string what;                ///< metis-profile, nvidia-topo, ...; orrery import --help.
  std::vector<std::string> files;  ///< Or a folder.
  std::vector<std::string> gpus;   ///< TYPE=NAME
  std::vector<std::string> links;  ///< KIND=CLASS, or CLASS
  Text cluster;                    ///< Its names count as well as the library's.
  Text bandwidth_unit;
  Text output;
};

void describe(config::Visitor& v, ImportSettings& settings);

TextResult import_files(const ImportSettings& settings, const Call& call);

}  // namespace orrery::experiments
