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
#include "tools/commands/inputs.h"

namespace orrery::tools {

/// Measures a machine and fits a profile.
struct CalibrateSettings {
  std::string out = "results/calibration";
  Text backend;
  Text library;
  Text precision;
  Text model;
  Text sequence_length;
  Text cluster;
  Text gpu_type;
  Text shares;  ///< Percent of a GPU's multiprocessors: 50,25
  Text ranks;
  Text only;  ///< Kinds of measurements.
  Text checkpoints;
  Text cloud;
  Text hosts;  ///< a:4,b:8
  bool ssh = false;
  bool netlab = false;
  Text listen;
  Text advertise;
  bool quick = false;
  bool fit_only = false;
  bool no_figure = false;
  bool quiet = false;
  bool json = false;
};

void describe(config::Visitor& v, CalibrateSettings& settings);

struct CalibrateJob {
  executor::BenchRequest request;
  executor::SamplingRule rule;
  executor::RunSettings settings;
  /// hosts, ssh, listen, port, advertise.
  executor::LaunchOptions where;
  std::optional<executor::NetlabSpec> lab;
  /// Multiprocessors of the green context of a device type; other types have the whole GPU.
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
CalibrateJob make_calibrate_job(const CalibrateSettings& args, const std::string& date);

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
