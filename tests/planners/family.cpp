#include "tests/planners/family.h"

#include <algorithm>
#include <string>
#include <vector>

#include "models/base/rng.h"

namespace orrery::planners {
namespace {

template <class T>
T one_of(Rng& rng, const std::vector<T>& values) {
  return values[rng.integer(0, static_cast<std::int64_t>(values.size()) - 1)];
}

}  // namespace

std::unique_ptr<World> tiny_world(std::uint64_t number) {
  Rng rng(0x7157 + number);
  std::vector<Machines> machines;
  int left = static_cast<int>(rng.integer(2, 6));
  while (left > 0 && machines.size() < 3) {
    std::vector<int> sizes;
    for (const int size : {1, 2, 4}) {
      if (size <= left) sizes.push_back(size);
    }
    Machines node;
    node.type = std::string(1, static_cast<char>('A' + machines.size()));
    node.tflops = one_of(rng, std::vector<double>{40, 80, 120, 160, 320});
    // States and activations of the whole model: 0.8 GiB (2 layers) to 1.9 GiB (6 layers).
    node.memory_gib = one_of(rng, std::vector<double>{1.3, 1.6, 2, 3, 16, 16, 16, 16});
    node.inside_gbps = one_of(rng, std::vector<double>{8, 25, 100});
    node.gpus = one_of(rng, sizes);
    left -= node.gpus;
    machines.push_back(node);
  }
  const double between = one_of(rng, std::vector<double>{0.5, 2, 12});
  ir::ModelShape shape = small_model(static_cast<int>(rng.integer(2, 6)));
  shape.vocabulary = 8000;
  const auto batch = rng.integer(2, 12);
  return std::make_unique<World>(make_cluster(machines, between), shape, batch, 512);
}

}  // namespace orrery::planners
