/// The cluster file as it is written, before names are resolved: `schema: orrery/cluster/1`, and
/// the library files `orrery/gpus/1` and `orrery/links/1`. Private to models/spec.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/config/visitor.h"
#include "models/spec/cluster.h"
#include "models/spec/library.h"

namespace orrery::models {

using LocatedName = config::Located<std::string>;
using LocatedMembers = config::Located<std::vector<int>>;

struct GpuEntry {
  LocatedName type;
  int count = 1;
};

struct DomainEntry {
  LocatedName link;
  LocatedMembers members;  ///< Empty: all GPUs of the node; so below.
  std::optional<BytesPerSecond> bandwidth;
  std::optional<Seconds> latency;
};

struct PcieEntry {
  LocatedName link;
  LocatedName uplink;
  LocatedMembers members;
};

struct NicEntry {
  LocatedName link;
  int count = 1;
  LocatedMembers members;
  std::optional<BytesPerSecond> bandwidth;
  std::optional<Seconds> latency;
};

struct NvmeEntry {
  BytesPerSecond read;
  BytesPerSecond write;
  Bytes capacity;
};

struct HostMemoryEntry {
  Bytes capacity;
  BytesPerSecond bandwidth;
};

/// One node, or `count` equal ones.
struct NodeEntry {
  LocatedName name;
  int count = 1;
  std::vector<GpuEntry> gpus;
  std::vector<DomainEntry> domains;
  std::vector<PcieEntry> pcie;
  std::vector<NicEntry> nics;
  NvmeEntry nvme;
  HostMemoryEntry host_memory;
  std::string region;
  int leaf = 0;
  int nodes_per_leaf = 0;
};

struct OverrideEntry {
  config::Located<std::vector<LocatedName>> between;
  std::optional<BytesPerSecond> bandwidth;
  config::Located<std::optional<Seconds>> latency;
};

struct StagingEntry {
  config::Located<std::vector<LocatedName>> vendors;
  BytesPerSecond bandwidth;
  Seconds latency;
};

/// A GPU type or link class of a cluster file: complete, or changes to `base`.
template <class T>
struct LocalEntry {
  std::optional<LocatedName> base;
  T value;
  std::set<std::string> given;  ///< Keys that the file gives.
};

struct ClusterFile {
  std::string name;
  std::string source;
  std::vector<NodeEntry> nodes;
  Fabric fabric;
  std::vector<OverrideEntry> overrides;
  std::vector<StagingEntry> host_staging;
  std::optional<ObjectStorage> storage;
  std::map<std::string, LocalEntry<GpuType>> gpus;
  std::map<std::string, LocalEntry<LinkClass>> links;
};

struct GpuFile {
  std::map<std::string, GpuType> gpus;
};
struct LinkFile {
  std::map<std::string, LinkClass> links;
};

void describe(config::Visitor& v, GpuType& gpu);
void describe(config::Visitor& v, LinkClass& link);
void describe(config::Visitor& v, LocalEntry<GpuType>& gpu);
void describe(config::Visitor& v, LocalEntry<LinkClass>& link);
void describe(config::Visitor& v, GpuEntry& gpu);
void describe(config::Visitor& v, DomainEntry& domain);
void describe(config::Visitor& v, PcieEntry& pcie);
void describe(config::Visitor& v, NicEntry& nic);
void describe(config::Visitor& v, NvmeEntry& nvme);
void describe(config::Visitor& v, HostMemoryEntry& memory);
void describe(config::Visitor& v, NodeEntry& node);
void describe(config::Visitor& v, Fabric& fabric);
void describe(config::Visitor& v, OverrideEntry& pair);
void describe(config::Visitor& v, StagingEntry& staging);
void describe(config::Visitor& v, ObjectStorage& storage);
void describe(config::Visitor& v, ClusterFile& file);
void describe(config::Visitor& v, GpuFile& file);
void describe(config::Visitor& v, LinkFile& file);

/// `base` with the keys that the entry gives.
GpuType overlay(GpuType base, const LocalEntry<GpuType>& entry);
LinkClass overlay(LinkClass base, const LocalEntry<LinkClass>& entry);

/// Keys of a node that hold a list but may hold its only item instead.
const std::set<std::string>& one_or_many_keys();

/// Reads the tree of a file; false if that added problems.
bool read_cluster_file(config::Value tree, ClusterFile& file, config::Diagnostics& diagnostics);

/// Resolves names and expands counts; the result is incomplete if that added problems.
Cluster resolve(const ClusterFile& file, const Library& library, config::Diagnostics& diagnostics);

}  // namespace orrery::models
