/// Settings of Metis's search: its hyper-parameters, and whether the defects of its public code
/// (SamsungLabs/Metis) are repeated.
#pragma once
#include <cstdint>

#include "models/config/visitor.h"

namespace orrery::planners {

enum class MetisMode { fixed, as_published };
enum class MetisMemory { automatic, layers, device };
enum class MetisRecompute { automatic, weakest, strongest };
enum class MetisTypeOrders { all, first };
enum class MetisBalance { capacity, uniform };
enum class MetisSpace { algorithm, full };
enum class MetisLayerGradients { first, each };
enum class MetisHeadInput { logits, hidden };
enum class MetisReplicaSamples { rounded_down, rounded_up };

struct MetisSettings {
  MetisMode mode = MetisMode::fixed;
  double variance = 0.5;
  int max_permute_length = 10;
  double memory_coefficient = 5;
  MetisMemory memory = MetisMemory::automatic;
  MetisRecompute recompute = MetisRecompute::automatic;
  int type_order = 0;
  MetisTypeOrders type_orders = MetisTypeOrders::all;
  int stages = 0;
  MetisBalance layer_balance = MetisBalance::capacity;
  MetisBalance data_balance = MetisBalance::capacity;
  bool bounds = true;
  MetisSpace space = MetisSpace::algorithm;
  // Corrections of the cost beyond the defects that `fixed` repairs.
  MetisLayerGradients layer_gradients = MetisLayerGradients::first;
  MetisHeadInput head_input = MetisHeadInput::logits;
  MetisReplicaSamples replica_samples = MetisReplicaSamples::rounded_down;
  std::int64_t default_budget = 28'000'000;
  int evaluate_top = 1;

  bool as_published() const { return mode == MetisMode::as_published; }
  /// All degrees and divisions of layers.
  bool full() const { return space == MetisSpace::full; }
};

void describe(config::Visitor& v, MetisSettings& s);

}  // namespace orrery::planners
