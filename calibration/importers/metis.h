/// Files of Metis (Um et al., ATC 2024; public code SamsungLabs/Metis) as ours: the layer profiles
/// that its planner reads, and the host file together with the cluster file. All problems of all
/// files are collected with their positions; what comes back after a problem is incomplete and not
/// to be used.
#pragma once
#include <map>
#include <string>

#include "models/config/diagnostics.h"
#include "models/ir/profile.h"
#include "models/spec/library.h"

namespace orrery::calibration {

/// GPU types as Metis calls them ("A100") to ours ("A100-80GB").
using GpuNames = std::map<std::string, std::string>;

/// Reads every `DeviceType.<TYPE>_tp<T>_bs<B>.json` of a folder; for `tp<T>_bs<B>.json`, which do
/// not say the type, `names` must have the type "". Types that are in `names` are renamed. Values
/// of the whole model come from the first file in the order (type, T, B); the public code takes the
/// first that the operating system lists.
ir::Profile import_metis_profile(const std::string& folder, const GpuNames& names,
                                 config::Diagnostics& diagnostics);

enum class BandwidthUnit {
  gigabytes,  ///< GB/s: what Metis's formulas and its sample file count in.
  bytes,      ///< B/s, as its README writes.
};

/// A cluster file (YAML, orrery/cluster/1) with a node for each line of the host file: "<address>
/// slots=<GPUs>" or "<address> <GPUs>". The cluster file is JSON: by address instance_type,
/// inter_bandwidth, intra_bandwidth and memory (GiB of one GPU). What Metis does not say comes from
/// the GPU of the library that `names` gives for the type, else from the one whose name begins with
/// the type and whose memory is nearest; latencies are zero.
std::string import_metis_cluster(const std::string& host_file, const std::string& cluster_file,
                                 const GpuNames& names, BandwidthUnit unit,
                                 const models::Library& library, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
