/// Galvatron's dynamic program: a strategy for each layer of a pipeline stage, so that the layers
/// fit into the stage's memory and take the least time, changes of strategy included.
///   C(L, E) = min over s of C(L - 1, E - O(L, s)) + c(L, s) + R(s', s)
/// [Miao et al., VLDB 2023, dynamic program; memory in whole steps as in its public code,
/// which counts in MB]. It works on plain numbers; strategies mean something to the caller alone.
#pragma once
#include <optional>
#include <vector>

namespace orrery::planners {

/// The layers of a stage and what each strategy costs there.
struct LayerChoices {
  /// [strategies] Strategies of equal layout can follow one another without moving activations.
  std::vector<int> layout;
  std::vector<std::vector<double>> time;    ///< [layers][strategies], >= 0.
  std::vector<std::vector<double>> memory;  ///< [layers][strategies] Bytes, >= 0.
  /// [layouts][layouts] Seconds per unit of `moved` from the row's layout to the column's.
  std::vector<std::vector<double>> change;
  std::vector<double> moved;  ///< [layers] What a change before the layer moves; [0] is not read.
  double any_change = 0;      ///< Seconds for each change of strategy, even of equal layout.
  double budget = 0;          ///< Bytes for all layers.
  /// Equal steps in which the budget is counted; a layer's memory is rounded up to whole ones.
  int steps = 1;
};

struct LayerAssignment {
  std::vector<int> strategy;  ///< [layers]
  double time = 0;            ///< Sum of layers and changes.
};

/// Steps that `memory` bytes take. steps + 1 where they do not fit.
int memory_steps(double memory, double budget, int steps);

/// Cost of one change of strategy before a layer (layer > 0).
double change_cost(const LayerChoices& choices, int layer, int from, int to);

/// The assignment of least time that fits; nothing when none does. Exact for the rounded memory.
/// Strategies that another one of the same layout beats in time and memory on every layer are left
/// out. Time O(layers x steps x strategies x layouts), memory O(layers x steps x strategies).
std::optional<LayerAssignment> choose_strategies(const LayerChoices& choices);

}  // namespace orrery::planners
