/// Paths of a cluster with one kind of link inside nodes and one between them.
#pragma once
#include "models/cost/path_function.h"
#include "models/spec/cluster.h"

namespace orrery::models {

/// Devices on one node see `inside`, others `between` (path kind network).
inline PathFunction two_level(const Cluster& cluster, Path inside, Path between) {
  inside.kind = PathClass::nvlink;
  between.kind = PathClass::network;
  return [&cluster, inside, between](DeviceId a, DeviceId b) {
    if (a == b) return Path{};
    return cluster.device(a).node == cluster.device(b).node ? inside : between;
  };
}

}  // namespace orrery::models
