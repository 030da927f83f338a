/// Clusters built or changed in code as text, and trees that were built in code as clusters; the
/// files of the library go through models/spec/library.h.
#pragma once
#include <string>

#include "models/config/type_tree.h"
#include "models/config/value.h"
#include "models/spec/cluster.h"
#include "models/spec/library.h"

namespace orrery::models {

/// The type of a cluster file's tree.
const config::TypeNode& cluster_file_type();

/// The cluster of a tree as a cluster file has it. Incomplete if that added problems.
Cluster read_cluster(const config::Value& tree, const Library& library,
                     config::Diagnostics& diagnostics);

/// YAML that load_cluster() reads as the same cluster, with all its GPU types and link classes;
/// equal nodes whose names count up are one entry.
std::string dump_cluster(const Cluster& cluster);

/// What load_cluster() would find wrong with a cluster that was built in code: indices and members
/// out of range, unknown links, GPUs that no path joins, numbers that cannot be.
void check_cluster(const Cluster& cluster, config::Diagnostics& diagnostics);

}  // namespace orrery::models
