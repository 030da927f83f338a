/// Models, clusters and plans of the public Sailor measurements (`validation/sailor` of the data
/// folder; its README has units and doubts). measured.json has plans with measured values,
/// unmeasured_plans.json plans to predict.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibration/importers/sailor.h"
#include "models/base/units.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

struct SailorModel {
  int layers = 0;  ///< Transformer layers; the profile counts embedding and last layer as well.
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int head_dim = 0;
  std::int64_t sequence = 0;
  int positions = 0;
  int vocabulary = 0;  ///< Before padding.
};

struct SailorNode {
  int gpus = 0;
  Bytes memory;  ///< Memory of one GPU.
};

/// Time and memory by a measurement or by another simulator.
struct SailorValue {
  std::optional<Seconds> iteration;
  std::optional<Bytes> peak_memory;
};

/// One tensor-parallel group on a node of its own.
struct SailorReplica {
  std::string gpu;
  int tensor_parallel = 1;
};

struct SailorStage {
  int first_layer = 0;  ///< Inclusive, numbered as the profiles: 0 is the embedding.
  int last_layer = 0;
  std::vector<SailorReplica> replicas;  ///< In rank order.
};

struct SailorPlan {
  std::string id;
  std::string cluster;  ///< gh200 or rtx.
  std::string model;
  int micro_batch = 0;  ///< Sequences.
  int global_batch = 0;
  int micro_batches = 0;  ///< Number in each pipeline.
  int data_parallel = 0;
  std::vector<SailorStage> stages;
  bool score = true;  ///< False: the measured time is doubtful.
  SailorValue measured;
  SailorValue earlier_run;                    ///< The same plan measured once before.
  std::map<std::string, SailorValue> others;  ///< Estimates of other simulators, by name.

  int tensor_parallel() const { return stages.front().replicas.front().tensor_parallel; }
};

struct SailorData {
  std::map<std::string, SailorModel> models;
  std::map<std::string, SailorNode> nodes;  ///< By GPU type.
  std::vector<SailorPlan> plans;            ///< measured.json, then unmeasured_plans.json.
  calibration::SailorTables tables;
};

/// All files of the folder. What is wrong goes to `diagnostics`; then the result is incomplete.
SailorData read_sailor_data(const std::string& folder, config::Diagnostics& diagnostics);

/// Megatron pads the vocabulary to a multiple of 128 x degree.
int padded_vocabulary(const SailorModel& model, int tensor_parallel);

/// The row of layer_memory.csv; throws std::runtime_error where there is none.
const calibration::SailorLayerMemory& layer_memory(const SailorData& data, const std::string& model,
                                                   int tensor_parallel, int layer);

}  // namespace orrery::experiments
