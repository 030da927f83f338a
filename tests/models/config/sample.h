/// A small configuration that uses every supported field type; shared by the tests of this folder.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/config/document.h"

namespace sample {

enum class Schedule { gpipe, one_f_one_b, interleaved };
std::vector<std::pair<Schedule, const char*>> enum_names(Schedule);

struct Link {
  orrery::Seconds latency{5e-6};
  orrery::BytesPerSecond bandwidth;
};
void describe(orrery::config::Visitor& v, Link& link);

/// Given as a map, or as one string "name*count".
struct Gpu {
  std::string name;
  int count = 1;
};
void describe(orrery::config::Visitor& v, Gpu& gpu);
bool from_scalar(const std::string& text, Gpu& out, std::string& error);

struct Node {
  orrery::config::Located<std::string> name;
  std::vector<Gpu> gpus;
  std::optional<Link> nic;
};
void describe(orrery::config::Visitor& v, Node& node);

struct Tree {
  int weight = 0;
  std::vector<Tree> children;
};
void describe(orrery::config::Visitor& v, Tree& tree);

struct Cluster {
  std::string title = "unnamed";
  std::vector<Node> nodes;
  std::map<std::string, Link> links;
  Schedule schedule = Schedule::gpipe;
  std::int64_t tokens = 1024;
  double efficiency = 0.5;
  bool recompute = false;
  std::optional<double> jitter;
  std::vector<orrery::DeviceId> devices;
  orrery::Bytes memory{80 * 0x1p30};
  orrery::FlopsPerSecond peak{312e12};
  orrery::Flops work{1e15};
  orrery::Dollars budget{100};
  orrery::DollarsPerSecond price{1.5 / 3600};
  orrery::config::Value overrides;
  Tree tree;
};
void describe(orrery::config::Visitor& v, Cluster& cluster);

/// A valid document with every key.
extern const char* const kCluster;

}  // namespace sample
