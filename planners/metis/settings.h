/// Hyper-parameters of Metis's search, and whether the defects of its public code
/// (SamsungLabs/Metis) are repeated; names, values and sources stand in the planner's options
/// (metis.cpp).
#pragma once
#include <cstdint>

namespace orrery::planners {

enum class MetisMemory { automatic, layers, device };
enum class MetisRecompute { automatic, weakest, strongest };

struct MetisSettings {
  bool as_published = false;
  double variance = 0.5;
  int max_permute_length = 0;
  double memory_coefficient = 0;
  MetisMemory memory = MetisMemory::automatic;
  MetisRecompute recompute = MetisRecompute::automatic;
  int type_order = 0;      ///< Which permutation of the GPU types comes first.
  bool one_order = false;  ///< Only that permutation.
  int stages = 0;          ///< Only this number of stages; 0: all.
  bool balance_layers = true;
  bool balance_data = true;
  bool bounds = true;
  bool full = false;  ///< All degrees and divisions of layers.
  std::int64_t default_budget = 0;
  int evaluate_top = 1;
};

}  // namespace orrery::planners
