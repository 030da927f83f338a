/// The public profiles of Sailor (Strati et al., SOSP 2025; code eth-easl/sailor, MIT) as ours: the
/// tables layer_times.csv, optimizer_times.csv, layer_memory.csv and network_bandwidth.csv and
/// models.json, in the layout and units of its README. All problems of all files are
/// collected with their positions; what comes back after a problem is incomplete and not to be
/// used.
#pragma once
#include <string>
#include <vector>

#include "calibration/importers/metis.h"
#include "models/base/units.h"
#include "models/config/diagnostics.h"
#include "models/ir/profile.h"

namespace orrery::calibration {

/// A run of layers with equal times. One micro-batch on one GPU of a tensor-parallel group inside a
/// node; the tensor-parallel all-reduces of the layer are inside.
struct SailorLayerTime {
  std::string model;
  std::string gpu;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  int first_layer = 0;  ///< Inclusive, as last_layer: 0 is the embedding, the last one the head.
  int last_layer = 0;
  Seconds forward;
  Seconds backward;  ///< For layer 0 an artifact of the measurement (about 2 us), not a time.
};

/// AdamW on the whole profiled model: embedding, two transformer layers, last layer.
struct SailorOptimizerTime {
  std::string model;
  std::string gpu;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  Seconds step;
  double parameters = 0;  ///< On one GPU.
};

/// A run of layers with equal memory: one GPU, micro-batch size 1 (the activations grow with it).
struct SailorLayerMemory {
  std::string model;
  int tensor_parallel = 1;
  int first_layer = 0;
  int last_layer = 0;
  double parameters = 0;
  Bytes parameter_bytes;    ///< fp32.
  Bytes input;              ///< Activation before the layer, full hidden size.
  Bytes output;             ///< Activation that crosses a pipeline cut after the layer.
  Bytes saved_activations;  ///< Kept from forward to backward.
};

/// Sending between GPUs of two nodes, or inside one, as a parabola in the size of the message.
struct SailorBandwidth {
  bool inter_node = true;
  std::string sender_gpu;
  int sender_pairs = 1;  ///< GPU pairs that send at the same time.
  std::string receiver_gpu;
  int receiver_pairs = 1;
  double c2 = 0, c1 = 0, c0 = 0;  ///< GB/s (10^9 bytes) in x = log2(message / 10^6 bytes).
  BytesPerSecond most_measured;   ///< Highest measured point, of all pairs together.
  Bytes positive_from;            ///< From here up the parabola is positive.
};

struct SailorTables {
  std::vector<SailorLayerTime> layer_times;
  std::vector<SailorOptimizerTime> optimizer_times;
  std::vector<SailorLayerMemory> layer_memory;
  std::vector<SailorBandwidth> bandwidths;
};
SailorTables read_sailor_tables(const std::string& folder, config::Diagnostics& diagnostics);

/// Rate of all pairs together when each sends `message` bytes; below `positive_from` that of
/// `positive_from`.
BytesPerSecond sailor_rate(const SailorBandwidth& fit, Bytes message);

/// Names of the link classes of the profile: a node's path to other nodes; a GPU's share of its
/// node's links when `pairs` pairs of GPUs send at once.
std::string sailor_node_link(const std::string& gpu);
std::string sailor_gpu_link(const std::string& gpu, int pairs);

/// Latency and bandwidth by message size between powers of two: straight lines through the times
/// of the parabola. The parabola is used where times grow with size, never falls with size, and is
/// capped at the highest measured point: beyond, it is no measurement. `share`: part of the rate
/// that one sender has, of 0 to 1.
std::vector<ir::LinkSegment> sailor_segments(const SailorBandwidth& fit, double share,
                                             const std::string& link_class);

/// - block_times in fp32. A transformer layer takes the mean of the two that were profiled; the
///   embedding has no backward time (the pricer's roofline is used instead).
/// - optimizers: least squares of step = fixed + parameters x per_parameter for each GPU type, over
///   models and degrees (mean over micro-batch sizes, which do not matter); in proportion to the
///   parameters where the line would not rise.
/// - links: sailor_node_link() of each GPU type from its measurement between two equal nodes with
///   one pair, sailor_gpu_link() for each measured number of pairs inside a node.
/// GPU types that are in `names` are renamed. Memory has no place in a profile: read_sailor_tables.
ir::Profile import_sailor_profile(const std::string& folder, const GpuNames& names,
                                  config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
