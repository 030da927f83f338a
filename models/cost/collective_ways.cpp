#include "models/cost/collective_ways.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "models/base/check.h"
#include "models/spec/link_calibration.h"

namespace orrery::models {
namespace {

using ir::CollectiveKind;
using Algorithm = ir::CollectiveWay::Algorithm;

double ceil_log2(std::size_t members) { return static_cast<double>(std::bit_width(members - 1)); }
double floor_log2(std::size_t nodes) { return static_cast<double>(std::bit_width(nodes) - 1); }

bool leaves_node(const Path& path) {
  return path.kind == PathClass::network || path.kind == PathClass::host_staged;
}

/// Of a link's bandwidth what is left for data beside the flags.
double data_share(ir::CollectiveWay::Protocol protocol) {
  switch (protocol) {
    case ir::CollectiveWay::Protocol::ll:
      return 0.5;
    case ir::CollectiveWay::Protocol::ll128:
      return 120.0 / 128.0;
    case ir::CollectiveWay::Protocol::simple:
      return 1;
  }
  ORRERY_CHECK(false, "protocol {}", static_cast<int>(protocol));
  return 1;
}

/// What all channels of a way reach over links of that bandwidth.
BytesPerSecond reached(const ir::CollectiveWay& way, BytesPerSecond link) {
  return std::min(static_cast<double>(way.channels) * way.channel_bandwidth,
                  data_share(way.protocol) * link);
}

/// Steps of a way inside of a domain, and what leaves each member for each byte of the tensor.
std::pair<double, double> steps_and_volume(const ir::CollectiveWay& way, CollectiveKind kind,
                                           std::size_t members) {
  const double p = static_cast<double>(members);
  const double both = kind == CollectiveKind::all_reduce ? 2 : 1;
  switch (way.algorithm) {
    case Algorithm::ring:
      return {both * (p - 1), both * (p - 1) / p};
    case Algorithm::tree:
      return {both * ceil_log2(members), both == 2 ? 2 : (p - 1) / p};
    case Algorithm::nvls:
      return {both, both == 2 ? (p + 1) / p : (p - 1) / p};
    case Algorithm::nvls_tree:
      break;  // Between nodes only.
  }
  ORRERY_CHECK(false, "algorithm {}", static_cast<int>(way.algorithm));
  return {};
}

const std::vector<ir::CollectiveWay>* ways_of(const LinkCalibration* calibration,
                                              CollectiveKind kind) {
  if (calibration == nullptr) return nullptr;
  const auto ways = calibration->ways.find(kind);
  return ways == calibration->ways.end() ? nullptr : &ways->second;
}

/// A ring of nodes as pipelines see it.
struct RingOfNodes {
  std::size_t nodes = 0;
  std::size_t inside = 0;  ///< Members of each node.
  BytesPerSecond between;  ///< Of the narrowest edge.
  BytesPerSecond port{HUGE_VAL};
  const LinkCalibration* calibration = nullptr;
};

/// The ring's nodes, if they have equally many members and edges of one class between them.
std::optional<RingOfNodes> ring_of_nodes(std::span<const Path> paths) {
  RingOfNodes ring;
  ring.between = BytesPerSecond{HUGE_VAL};
  for (const Path& path : paths) {
    if (!leaves_node(path)) {
      ring.port = std::min(ring.port, path.bandwidth);
      continue;
    }
    if (path.calibration == nullptr || path.kind != PathClass::network) return std::nullopt;
    if (ring.nodes++ == 0) ring.calibration = path.calibration;
    if (path.calibration != ring.calibration) return std::nullopt;
    ring.between = std::min(ring.between, path.bandwidth);
  }
  if (ring.nodes < 2 || paths.size() % ring.nodes != 0) return std::nullopt;
  ring.inside = paths.size() / ring.nodes;
  std::size_t since = 0;  // Members since the last node.
  for (std::size_t i = 0; i < paths.size() + ring.inside; ++i) {
    ++since;
    if (!leaves_node(paths[i % paths.size()])) continue;
    if (i >= ring.inside && since != ring.inside) return std::nullopt;
    since = 0;
  }
  return ring;
}

Pipeline pipeline(const ir::CollectiveWay& way, const RingOfNodes& ring, std::size_t adapters,
                  Bytes bytes) {
  const double m = static_cast<double>(ring.inside);
  const double levels = floor_log2(ring.nodes);
  const bool in_switch = way.algorithm == Algorithm::nvls_tree;
  const Bytes loop = static_cast<double>(way.channels) * (in_switch ? m : 1) *
                     chunk_size(way, bytes, ring.inside, ring.nodes);
  const double count = std::max(1.0, std::ceil(bytes / loop));
  const double stages = in_switch ? 3 + 2 * levels : 2 * (m - 1 + levels);
  const BytesPerSecond between = reached(way, static_cast<double>(adapters) * ring.between);
  Pipeline found;
  found.between = (ring.nodes > 2 ? 2.0 : 1.0) * bytes;
  if (ring.inside > 1) found.inside = (in_switch ? (m + 1) / m : 2) * bytes;
  const Seconds network = way.start + 2 * levels * way.step + found.between / (count * between);
  found.time = (count - 1 + stages) * std::max(network, found.inside / (count * ring.port));
  return found;
}

}  // namespace

Bytes chunk_size(const ir::CollectiveWay& way, Bytes message, std::size_t inside,
                 std::size_t nodes) {
  constexpr double kKiB = 1024;
  double chunk = way.chunk.value;
  const double side_by_side =
      way.channels * (way.algorithm == Algorithm::nvls_tree ? static_cast<double>(inside) : 1);
  const auto loops = [&] { return std::floor(message.value / (side_by_side * chunk)); };
  if (way.algorithm == Algorithm::nvls_tree) {
    // Fewer loops than that: no larger chunks than these.
    constexpr std::pair<double, double> kLargest[] = {
        {32, 256 * kKiB}, {16, 128 * kKiB}, {4, 64 * kKiB}, {1, 32 * kKiB}};
    for (const auto& [fewest, largest] : kLargest) {
      if (loops() < fewest) chunk = std::min(chunk, largest);
    }
    return Bytes{chunk};
  }
  const double depth = static_cast<double>(inside) - 1 + floor_log2(nodes);
  constexpr std::pair<double, double> kHalved[] = {{8, 128 * kKiB}, {4, 64 * kKiB}, {1, 32 * kKiB}};
  for (const auto& [fewest, smallest] : kHalved) {
    while (loops() < fewest * depth && chunk > smallest) chunk /= 2;
  }
  return Bytes{chunk};
}

std::optional<FastestWay> fastest_way(CollectiveKind kind, std::size_t members,
                                      std::span<const Path> paths, Bytes bytes) {
  const LinkCalibration* calibration = paths.front().calibration;
  const auto* ways = ways_of(calibration, kind);
  if (ways == nullptr) return std::nullopt;
  Path narrowest = paths.front();
  for (const Path& path : paths) {
    if (path.calibration != calibration || leaves_node(path)) return std::nullopt;
    narrowest.bandwidth = std::min(narrowest.bandwidth, path.bandwidth);
    narrowest.latency = std::max(narrowest.latency, path.latency);
  }
  std::optional<FastestWay> fastest;
  for (const ir::CollectiveWay& way : *ways) {
    if (way.chunk.value > 0 || bytes < way.from_bytes) continue;
    const auto [steps, volume] = steps_and_volume(way, kind, members);
    FastestWay one;
    one.latency = std::max(way.start + steps * way.step, narrowest.latency);
    one.transmission = volume * bytes / reached(way, narrowest.bandwidth);
    one.carried = one.transmission * narrowest.bandwidth;
    if (!fastest || one.latency + one.transmission < fastest->latency + fastest->transmission) {
      fastest = one;
    }
  }
  return fastest;
}

std::optional<Pipeline> fastest_pipeline(CollectiveKind kind, std::span<const Path> paths,
                                         std::size_t adapters, Bytes bytes) {
  const auto ring = ring_of_nodes(paths);
  if (!ring) return std::nullopt;
  const auto* ways = ways_of(ring->calibration, kind);
  if (ways == nullptr) return std::nullopt;
  std::optional<Pipeline> fastest;
  for (const ir::CollectiveWay& way : *ways) {
    if (way.chunk.value <= 0 || bytes < way.from_bytes) continue;
    const Pipeline one = pipeline(way, *ring, adapters, bytes);
    if (!fastest || one.time < fastest->time) fastest = one;
  }
  return fastest;
}

}  // namespace orrery::models
