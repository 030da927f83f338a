/// What a profile says about the links of one class: times of messages by size, and how far real
/// collectives are from their closed form. A Topology that was built with a profile hands it out
/// with each path whose narrowest link has the class.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"

namespace orrery::models {

struct LinkCalibration {
  /// A message of `from` bytes or more (and less than the next segment's) takes latency + bytes /
  /// bandwidth. The first one holds for shorter messages too.
  struct Segment {
    Bytes from;
    Seconds latency;
    BytesPerSecond bandwidth;
  };
  struct Factor {
    int ranks = 0;
    double factor = 1;
  };

  std::string link_class;
  /// The largest bytes / time over all sizes: no message moves faster, so that flows that share a
  /// link of this bandwidth share it by their bytes. Of one segment its bandwidth.
  BytesPerSecond wire_bandwidth;
  /// The least time - bytes / wire_bandwidth over all sizes: what every message waits for in
  /// addition to its bytes. Of one segment its latency.
  Seconds wire_latency;
  std::vector<Segment> segments;  ///< Ascending; empty: the cluster file's numbers hold.
  std::map<ir::CollectiveKind, std::vector<Factor>> factors;  ///< Ascending in ranks.

  /// Ways of a communication library to carry a collective among members that this class joins.
  std::map<ir::CollectiveKind, std::vector<ir::CollectiveWay>> ways;

  /// The segment of a message; there must be one.
  const Segment& segment(Bytes message) const;
  /// Measured time over closed form: linear in the number of ranks between measured ones, that of
  /// the nearest outside; 1 where this collective was not measured.
  double factor(ir::CollectiveKind kind, int ranks) const;
};

/// By link class. Factors of collectives that have no such name are left out: profiles from files
/// have none (models/spec/profile_yaml.h).
std::map<std::string, LinkCalibration> link_calibrations(const ir::Profile& profile);

/// Link classes that the cluster's devices are joined by: of domains, PCIe switches and NICs.
std::set<std::string> link_classes(const Cluster& cluster);

/// One line for each class and each collective of a class: whether the cluster has such links, so
/// that a Topology that is built with the profile takes them.
std::vector<std::string> describe_calibrations(const Cluster& cluster, const ir::Profile& profile);

}  // namespace orrery::models
