/// InfraGraph, the infrastructure model of MLCommons Chakra, as a cluster file.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/spec/library.h"

namespace orrery::calibration {

/// What the file's names mean here.
struct InfraNames {
  /// GPU type by device or component; "" names all others. Names of the library need none.
  std::map<std::string, std::string> gpus;
  /// Link class of the library by link: of all links of that name that leave one GPU, NIC or slot
  /// together. Other links become classes of the cluster file.
  std::map<std::string, std::string> links;
};

struct ImportedCluster {
  std::string yaml;                ///< orrery/cluster/1, which loads; "" after a problem.
  std::vector<std::string> notes;  ///< What was assumed, or left out.
};

/// Machines with xpu components become nodes, others that their NICs reach become leaf, spine and
/// core switches.
///   inside   GPUs that switches or links of one name join are a domain, unless a switch also has a
///            cpu, nic, port or custom component: that is a PCIe switch. A port is as wide as the
///            links of its GPU together.
///   NICs     components (whole devices within the device) with edges to switches; a GPU uses the
///            fastest of its nearest ones.
///   fabric   NICs that hang on one switch each in turn are rails. Oversubscription is the NIC
///            bandwidth below a switch over that of its edges upwards.
/// Latencies are those of the links passed; where the file has none, and for what links achieve of
/// their bandwidth, the library's usual assumptions are written. Hosts joined without a switch,
/// GPUs with two networks, more than three levels, switches that nothing joins, links without
/// bandwidth, and what read_infragraph() refuses are problems.
ImportedCluster import_infragraph(const std::string& path, const InfraNames& names,
                                  const models::Library& library, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
