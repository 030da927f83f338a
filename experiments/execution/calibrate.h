/// A machine measured by the executor's own passes, transports and checkpoints; every sample is
/// kept, and a profile fitted.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibration/fit/fit.h"
#include "executor/bench/cases.h"
#include "experiments/execution/machines.h"
#include "experiments/study/call.h"
#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/ir/measurement.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

/// Measures a machine and fits a profile.
struct CalibrateSettings {
  std::string out = "results/calibration";
  BackendKind backend = BackendKind::cpu;
  std::optional<CpuLibrary> library;
  std::optional<executor::Precision> precision;
  Text model;
  std::optional<std::int64_t> sequence_length;
  Text cluster;
  Text gpu_type;
  std::vector<CardShare> shares;  ///< Without devices.
  std::optional<std::int64_t> ranks;
  std::vector<ir::MeasurementKind> only;
  Text checkpoints;
  Text cloud;
  MachineSettings machines;
  bool quick = false;
  bool fit_only = false;
  bool no_figure = false;
  bool quiet = false;
};
void describe(config::Visitor& v, CalibrateSettings& settings);

struct CalibrateResult {
  ir::MeasurementSet measured;
  calibration::FitReport fit;
  std::vector<std::string> files;  ///< That lie in the output folder now.

  std::int64_t disturbed() const;  ///< Samples.
};
void describe(config::Visitor& v, CalibrateResult& result);

/// If a cluster is neither emulated nor on hosts, only its number of devices counts: links are
/// of class "loopback", the one device is of type "cpu" (or the GPU's name, or gpu_type). GPUs of
/// this machine are the cluster's where it is one node; their messages go through host memory and
/// are of class "loopback" as well. A second call goes on where the first one
/// ended. Throws ConfigError with all problems; Interrupted (samples are kept); std::runtime_error
/// with what went wrong (devices that ended, folders that cannot be written).
CalibrateResult calibrate(const CalibrateSettings& settings, const Call& call,
                          config::Diagnostics problems = {});

/// Link class of the narrowest link between two devices: of equally narrow ones the first that has
/// a class; "" where none has.
std::string narrowest_class(const models::Cluster& cluster, DeviceId source, DeviceId destination);

/// What carries messages between devices of one node: the cluster's links, as with CPUs, whose
/// processes are what the cluster describes; or, between the GPUs of a node, TCP over loopback from
/// host memory to host memory, which says nothing about NVLink and has the class "loopback".
enum class InsideNodes { links, loopback };

/// Pairs to measure: inside nodes one for each link class and direction; between nodes all directed
/// pairs of first devices, of more than kMostPairedNodes nodes those of neighbors.
std::vector<executor::BenchPair> bench_pairs(const models::Cluster& cluster,
                                             InsideNodes within = InsideNodes::links);
inline constexpr std::size_t kMostPairedNodes = 8;

/// Groups of 2, 4 and 8 devices: the first of a node, and the first devices of the first nodes.
std::vector<executor::BenchGroup> bench_groups(const models::Cluster& cluster,
                                               InsideNodes within = InsideNodes::links);

}  // namespace orrery::experiments
