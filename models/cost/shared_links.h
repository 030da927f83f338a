/// Collectives that run at the same time, with the links that they have in common: the closed forms
/// of models/cost/collective.h take each edge as if it were alone. Groups of a stage that dispatch
/// tokens to each other's experts often leave a node through one NIC.
#pragma once
#include <map>
#include <span>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/ir/program.h"
#include "models/spec/topology.h"

namespace orrery::models {

/// A topology some of whose links are slower than it says. References.
struct Network {
  const Topology& topology;
  const PathFunction& path;                  ///< Over links as slow as they are.
  const std::map<LinkId, double>& slowdown;  ///< Of slower links, above 1.
};

class SharedLinks {
 public:
  struct Load {
    Seconds busy;     ///< All bytes over the link, at its bandwidth.
    Seconds latency;  ///< The longest of a flow over the link.
  };
  explicit SharedLinks(const Network& network) : network_(network) {}

  /// One more collective by the ring algorithm that starts with the others. `bytes_per_peer` as in
  /// collective_flows().
  void add(ir::CollectiveKind kind, std::span<const DeviceId> group, Bytes bytes,
           std::span<const double> bytes_per_peer = {});

  /// Until the last one has ended, nothing else being on the network: the longest of each alone and
  /// of each link's bytes with its longest latency.
  Seconds time() const;
  /// Without links that are never shared (Link::uncontended).
  const std::map<LinkId, Load>& loads() const { return loads_; }

 private:
  Network network_;
  Seconds alone_;
  std::map<LinkId, Load> loads_;
};

}  // namespace orrery::models
