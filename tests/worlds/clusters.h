/// Small clusters for tests.
#pragma once
#include <string>
#include <vector>

#include "models/spec/cluster.h"

namespace orrery::worlds {

/// Nodes by the types of their GPUs, without links; unnamed types where `types` is empty.
models::Cluster bare_cluster(const std::vector<std::vector<int>>& nodes,
                             std::vector<models::GpuType> types = {});

/// One node of equal GPUs, without links.
models::Cluster one_node(int devices);

/// 100 TFLOPS at half efficiency, 1 TB/s at half efficiency, no launch cost: 50e12 and 500e9.
models::GpuType round_gpu(const std::string& name = "round");

struct ClusterShape {
  int nodes = 1;
  int gpus = 8;  ///< Per node.
  BytesPerSecond nvlink{200e9};
  BytesPerSecond pcie{50e9};
  BytesPerSecond nic{25e9};
  Seconds latency{2e-6};  ///< Of NVLink; PCIe and NICs have twice that.
  bool nic_per_gpu = true;
  bool has_nvlink = true;
  bool shared_pcie = false;  ///< One medium for all slots of a node.
};

/// GPUs of 50 TFLOP/s achieved, with endless memory bandwidth: compute times are FLOPs / 5e13.
models::Cluster make_cluster(const ClusterShape& shape);

/// `machines` nodes with `gpus` GPUs of a type each.
struct Machines {
  std::string type;
  double tflops = 100;
  double memory_gib = 24;
  int gpus = 1;
  double inside_gbps = 100;  ///< GB/s between any two GPUs of the node.
  int machines = 1;
};
models::Cluster make_cluster(const std::vector<Machines>& machines, double between_gbps);

/// The machines A, B and C of HexiScale's case study (3.1).
models::Cluster case_study_cluster();
/// The mix of HexiScale's Appendix B, scaled to about `gpus` GPUs; 240: the published one.
models::Cluster mixed_cluster(int gpus);

}  // namespace orrery::worlds
