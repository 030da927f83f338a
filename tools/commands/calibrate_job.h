/// What `orrery calibrate` measures where: flags, cluster and model as a request of the
/// micro-benchmarks. Private to the calibrate command.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibration/fit/fit.h"
#include "executor/bench/cases.h"
#include "executor/bench/sampling.h"
#include "executor/launcher/launcher.h"
#include "executor/netlab/spec.h"
#include "models/config/diagnostics.h"
#include "models/spec/cluster.h"
#include "tools/cli/args.h"

namespace orrery::tools {

struct CalibrateJob {
  executor::BenchRequest request;
  executor::SamplingRule rule;
  executor::RunSettings settings;
  /// hosts, ssh, listen, port, advertise.
  executor::LaunchOptions where;
  std::optional<executor::NetlabSpec> lab;
  /// Of green contexts, by device type; other types have the whole GPU.
  std::map<std::string, int> multiprocessors;
  ir::MeasurementSet about;  ///< Without measurements.
  calibration::FitOptions fit;
  /// What a reader of the profile must know: a cluster was named and this machine is measured, not
  /// the cluster, or what part of the GPU a share is; "": nothing.
  std::string note;
};

/// Throws ConfigError with all problems. `date` is ISO 8601. Of a cluster that is neither emulated
/// nor on hosts only the number of devices counts: links are of class "loopback", the one device
/// is of type "cpu" (or the GPU's name, or --gpu-type). GPUs of this machine are the cluster's
/// where it is one node.
CalibrateJob make_calibrate_job(const CalibrateArgs& args, const std::string& date);

/// Link class of the narrowest link between two devices: of equally narrow ones the first that has
/// a class; "" where none has.
std::string narrowest_class(const models::Cluster& cluster, DeviceId source, DeviceId destination);

/// Pairs to measure: inside nodes one for each link class and direction; between nodes all directed
/// pairs of first devices, of more than kMostPairedNodes nodes those of neighbors.
std::vector<executor::BenchPair> bench_pairs(const models::Cluster& cluster);
inline constexpr std::size_t kMostPairedNodes = 8;

/// Groups of 2, 4 and 8 devices: the first of a node, and the first devices of the first nodes.
std::vector<executor::BenchGroup> bench_groups(const models::Cluster& cluster);

}  // namespace orrery::tools
