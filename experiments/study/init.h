/// A cluster file from a few words, and what looks wrong about a cluster: `orrery init`.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/exports.h"
#include "experiments/study/inputs.h"

namespace orrery::experiments {

struct InitSettings {
  /// "4x8xH100": nodes, GPUs of each, type; a type of the library or its beginning.
  std::vector<std::string> nodes;
  std::string name = "my_cluster";
  /// Link classes and counts by GPU type as named in `nodes`; `all` is for all types.
  std::map<std::string, std::string> network;  ///< Of the NICs.
  std::map<std::string, std::string> nvlink;   ///< Between the GPUs of a node; `none`: PCIe only.
  std::map<std::string, std::string> nics;     ///< How many a node has.
  double oversubscription = 1;  ///< NICs below a leaf switch over its uplink; 1: no limit.
  Text output;
};
void describe(config::Visitor& v, InitSettings& settings);

/// A file that load_cluster() reads. What nobody said is assumed, and a comment of the file says
/// so. Notes of the call: what looks wrong (implausible()). A file that is there and says something
/// else, as one that was edited does, is a problem: it stays as it is.
TextResult init_cluster(const InitSettings& settings, const Call& call,
                        config::Diagnostics problems = {});

/// The library's GPU type that a beginning of a name means: "H100" is "H100-80GB", "A100" the one
/// with the most memory; "" if none.
std::string gpu_type_of(const std::string& beginning, const models::Library& library);

/// Numbers of a cluster that no hardware has, each in a sentence with what was probably meant: bits
/// taken for bytes, a GFLOP for a TFLOP. Empty: nothing looks wrong.
std::vector<std::string> implausible(const models::Cluster& cluster);

}  // namespace orrery::experiments
