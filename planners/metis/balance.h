/// How Metis (ATC 2024, 4.2.2 "Capacity-aware load balancing") divides layers over stages and
/// samples over replicas. The steps and the order of every floating-point operation are those of
/// the public code: its comparisons of nearly equal sums decide where layers go.
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace orrery::planners {

/// Divides layers in proportion to the capacity of stages. Keeps buffers; not for concurrent use.
class LayerBalancer {
 public:
  /// `demand`: share of each layer in the time of the model. With `keep_all` a layer of which no
  /// stage gets more than half goes to the stage that got most of it; the public code loses it.
  LayerBalancer(std::vector<double> demand, bool keep_all);

  /// Layers before each stage, and all that were placed at the end: stages + 1 numbers, ascending.
  /// `capacity`: share of each stage in the speed of the pipeline. Stages may be empty. Each layer
  /// is cut into 7 pieces; stages are filled from the front, the last one from the back, what is
  /// left goes to the adjacent stage with most capacity left; then up to 3 layers move to the
  /// stage with most capacity left. None where the public code would stop with an error.
  std::optional<std::vector<int>> divide(std::span<const double> capacity);

 private:
  void assign(int stage, int piece);
  void fill_from_front();
  void fill_last_from_back();
  bool place_rest();
  int between(int piece) const;
  std::pair<int, int> holder(int layer) const;
  void settle(std::span<const double> capacity);
  int move_layer(int from, int to);
  void move_layers();

  std::vector<double> demand_;
  std::vector<double> piece_;  ///< Demand of a piece, by layer.
  bool keep_all_;
  int stages_ = 0;
  int pieces_ = 0;
  std::vector<double> left_;  ///< Capacity left, by stage.
  std::vector<int> owner_;    ///< Stage of each piece, or -1.
  std::vector<int> first_;    ///< First and last piece of each stage.
  std::vector<int> last_;
  std::vector<int> count_;
  std::vector<std::vector<int>> layers_;  ///< Of each stage, ascending.
};

/// Capacities after a division that ran out of memory: stages that need more than they have are
/// lowered to what fits, less a tenth; the others take over in proportion to their capacity, up to
/// what their memory has room for. None when there is not room enough for all, or when the room is
/// spread so thin (below 0.001 of capacity per stage) that nothing more can be handed out; there
/// the public code does not end.
std::optional<std::vector<double>> shift_capacity(std::span<const double> capacity,
                                                  std::span<const double> memory,
                                                  std::span<const double> need);

/// Samples of each replica, in proportion to 1 / `time` (of the whole model for one sample):
/// rounded down, and the rest by largest remainders, earlier ones first.
std::vector<int> divide_samples(std::span<const double> time, int samples);

}  // namespace orrery::planners
