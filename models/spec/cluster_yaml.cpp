/// Descriptions of the cluster file and of the library's GPUs and links.
#include <fmt/format.h>

#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/spec/cluster_file.h"
#include "models/spec/ranges.h"

namespace orrery::models {
namespace {

constexpr bool kRequired = true;
constexpr bool kOptional = false;

/// Calls f(key, member, required, doc) for each field of a GPU type.
template <class F>
void gpu_fields(F f) {
  f("vendor", &GpuType::vendor, kRequired, "nvidia, amd, ...");
  f("peak", &GpuType::peak, kRequired, "dense FLOP/s by dtype; a missing dtype is not supported");
  f("memory", &GpuType::memory, kRequired, "of one GPU");
  f("memory_bandwidth", &GpuType::memory_bandwidth, kRequired, "of one GPU");
  f("efficiency", &GpuType::efficiency, kOptional, "share of peak of a large transformer block");
  f("memory_efficiency", &GpuType::memory_efficiency, kOptional,
    "share of memory bandwidth of streaming kernels");
  f("launch", &GpuType::launch, kOptional, "fixed cost of one op");
  f("price", &GpuType::price, kOptional, "on demand");
  f("spot_price", &GpuType::spot_price, kOptional, "preemptible");
  f("power", &GpuType::power, kOptional, "largest draw of the board (TDP, TBP)");
  f("source", &GpuType::source, kRequired, "where the numbers come from");
}

template <class F>
void link_fields(F f) {
  f("bandwidth", &LinkClass::bandwidth, kRequired, "raw, one direction of one port");
  f("latency", &LinkClass::latency, kRequired, "one way, software included");
  f("efficiency", &LinkClass::efficiency, kOptional, "achievable share for large messages");
  f("shared", &LinkClass::shared, kOptional, "one medium for all its ports");
  f("mesh", &LinkClass::mesh, kOptional,
    "no switch: a link of this bandwidth between every two GPUs of a domain");
  f("source", &LinkClass::source, kRequired, "where the numbers come from");
}

using Peak = std::map<ir::Dtype, FlopsPerSecond>;

void describe_peak(config::Visitor& v, const char* key, Peak& peak, bool required,
                   const char* doc) {
  std::map<std::string, FlopsPerSecond> by_name;
  for (const auto& [dtype, flops] : peak) by_name[ir::name_of(dtype)] = flops;
  required ? v.required(key, by_name, doc) : v.optional(key, by_name, doc);
  if (!v.reading() || !v.given(key)) return;
  peak.clear();
  for (const auto& [name, flops] : by_name) {
    std::vector<std::string> names;
    for (const auto& [dtype, known] : ir::enum_names(ir::Dtype{})) {
      names.emplace_back(known);
      if (name == known) peak[dtype] = flops;
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return v.problem(key, fmt::format("unknown dtype '{}'", name),
                       config::suggest(name, names, "dtypes"));
    }
    if (!(flops.value > 0)) v.problem(key, fmt::format("{} must be positive", name));
  }
  if (by_name.empty()) v.problem(key, "no dtype is supported");
}

/// One field of T at `member`.
template <class T, class M>
void describe_field(config::Visitor& v, const char* key, T& object, M T::*member, bool required,
                    const char* doc) {
  if constexpr (std::is_same_v<M, Peak>) {
    describe_peak(v, key, object.*member, required, doc);
  } else {
    required ? v.required(key, object.*member, doc) : v.optional(key, object.*member, doc);
  }
}

void check(config::Visitor& v, const GpuType& gpu) {
  if (v.given("memory")) v.positive("memory", gpu.memory);
  if (v.given("memory_bandwidth")) v.positive("memory_bandwidth", gpu.memory_bandwidth);
  for (const auto& [key, share] :
       {std::pair{"efficiency", gpu.efficiency}, {"memory_efficiency", gpu.memory_efficiency}}) {
    v.positive(key, share);
    v.between(key, share, 0.0, 1.0);
  }
  v.between("launch", gpu.launch, Seconds{0}, kLongestOp);
  if (gpu.price) v.not_negative("price", *gpu.price);
  if (gpu.spot_price) v.not_negative("spot_price", *gpu.spot_price);
  if (gpu.power) v.positive("power", *gpu.power);
  if (v.given("source") && gpu.source.empty()) v.problem("source", "the source is empty");
}

void check(config::Visitor& v, const LinkClass& link) {
  if (v.given("bandwidth")) v.positive("bandwidth", link.bandwidth);
  v.between("latency", link.latency, Seconds{0}, kLongestOp);
  v.positive("efficiency", link.efficiency);
  v.between("efficiency", link.efficiency, 0.0, 1.0);
  if (link.shared && link.mesh) v.problem("mesh", "one medium for all ports is no mesh");
  if (v.given("source") && link.source.empty()) v.problem("source", "the source is empty");
}

template <class T, class Fields>
void describe_local(config::Visitor& v, LocalEntry<T>& entry, Fields fields, const char* title,
                    const char* base_doc) {
  v.title(title);
  v.doc("Complete, or changes to `base`.");
  v.optional("base", entry.base, base_doc);
  entry.given.clear();
  fields([&](const char* key, auto member, bool required, const char* doc) {
    describe_field(v, key, entry.value, member, false, doc);
    if (!v.reading()) return;
    if (v.given(key)) entry.given.insert(key);
    if (required && !entry.base && !v.given(key) && v.good()) {
      v.problem("", fmt::format("missing key '{}'", key), fmt::format("{}, or give `base`", doc));
    }
  });
  if (v.reading()) check(v, entry.value);
}

template <class T, class Fields>
T overlay_fields(T base, const LocalEntry<T>& entry, Fields fields) {
  fields([&](const char* key, auto member, bool, const char*) {
    if (entry.given.contains(key)) base.*member = entry.value.*member;
  });
  return base;
}

template <class Entry>
void describe_medium(config::Visitor& v, Entry& entry) {
  v.optional("members", entry.members, "positions in the node's GPU list; empty: all GPUs");
  v.optional("bandwidth", entry.bandwidth, "replaces that of the link class");
  v.optional("latency", entry.latency, "replaces that of the link class");
  if (entry.bandwidth) v.positive("bandwidth", *entry.bandwidth);
  if (entry.latency) v.between("latency", *entry.latency, Seconds{0}, kLongestOp);
}

}  // namespace

GpuType overlay(GpuType base, const LocalEntry<GpuType>& entry) {
  return overlay_fields(std::move(base), entry, [](auto f) { gpu_fields(f); });
}
LinkClass overlay(LinkClass base, const LocalEntry<LinkClass>& entry) {
  return overlay_fields(std::move(base), entry, [](auto f) { link_fields(f); });
}

void describe(config::Visitor& v, GpuType& gpu) {
  v.title("GPU type");
  gpu_fields([&](const char* key, auto member, bool required, const char* doc) {
    describe_field(v, key, gpu, member, required, doc);
  });
  if (v.reading()) check(v, gpu);
}

void describe(config::Visitor& v, LinkClass& link) {
  v.title("Link class");
  link_fields([&](const char* key, auto member, bool required, const char* doc) {
    describe_field(v, key, link, member, required, doc);
  });
  if (v.reading()) check(v, link);
}

void describe(config::Visitor& v, LocalEntry<GpuType>& gpu) {
  describe_local(
      v, gpu, [](auto f) { gpu_fields(f); }, "GPU type of the cluster", "GPU type of the library");
}
void describe(config::Visitor& v, LocalEntry<LinkClass>& link) {
  describe_local(
      v, link, [](auto f) { link_fields(f); }, "Link class of the cluster",
      "link class of the library");
}

void describe(config::Visitor& v, GpuEntry& gpu) {
  v.title("GPUs of a node");
  v.required("type", gpu.type, "GPU type of the library or of `gpus`");
  v.optional("count", gpu.count, "of this type, side by side");
  v.between("count", gpu.count, 1, 1024);
}

void describe(config::Visitor& v, DomainEntry& domain) {
  v.title("Link domain");
  v.doc("GPUs that a full-bandwidth switch joins: NVLink, PCIe peer-to-peer.");
  v.required("link", domain.link, "link class of each GPU's port");
  describe_medium(v, domain);
}

void describe(config::Visitor& v, PcieEntry& pcie) {
  v.title("PCIe switch");
  v.required("link", pcie.link, "link class of each GPU's slot");
  v.optional("uplink", pcie.uplink, "link class that its GPUs share; empty: no bottleneck");
  v.optional("members", pcie.members, "positions in the node's GPU list; empty: all GPUs");
}

void describe(config::Visitor& v, NicEntry& nic) {
  v.title("NICs of a node");
  v.required("link", nic.link, "link class of one NIC");
  v.optional("count", nic.count, "equal ones; the GPUs are spread over them in order");
  describe_medium(v, nic);
  v.between("count", nic.count, 1, 1024);
}

void describe(config::Visitor& v, NvmeEntry& nvme) {
  v.title("NVMe");
  v.required("read", nvme.read, "of the whole node");
  v.required("write", nvme.write, "of the whole node");
  v.required("capacity", nvme.capacity, "of the whole node");
  v.positive("read", nvme.read);
  v.positive("write", nvme.write);
  v.positive("capacity", nvme.capacity);
}

void describe(config::Visitor& v, HostMemoryEntry& memory) {
  v.title("Host memory");
  v.required("capacity", memory.capacity, "of the whole node");
  v.required("bandwidth", memory.bandwidth, "of the whole node");
  v.positive("capacity", memory.capacity);
  v.positive("bandwidth", memory.bandwidth);
}

void describe(config::Visitor& v, NodeEntry& node) {
  v.title("Node");
  v.doc("`gpus`, `domains`, `pcie` and `nics` are lists; a single item needs no list.");
  v.required("name", node.name, "unique; with a count, node i is name-i");
  v.optional("count", node.count, "equal nodes");
  v.required("gpus", node.gpus, "in the order of positions and device ids");
  v.optional("domains", node.domains, "NVLink and the like");
  v.optional("pcie", node.pcie, "PCIe switches");
  v.optional("nics", node.nics, "network cards");
  std::optional<NvmeEntry> nvme;  // a node without one has none
  std::optional<HostMemoryEntry> memory;
  if (node.nvme.capacity.value > 0) nvme = node.nvme;
  if (node.host_memory.capacity.value > 0) memory = node.host_memory;
  v.optional("nvme", nvme, "local storage");
  v.optional("host_memory", memory, "memory of the host");
  if (nvme) node.nvme = *nvme;
  if (memory) node.host_memory = *memory;
  v.optional("region", node.region, "cloud region");
  v.optional("leaf", node.leaf, "leaf switch of its NICs");
  v.optional("nodes_per_leaf", node.nodes_per_leaf,
             "node i hangs on leaf + i / nodes_per_leaf; 0: all on `leaf`");
  v.between("count", node.count, 1, 1 << 16);
  v.between("leaf", node.leaf, 0, 1 << 16);
  v.not_negative("nodes_per_leaf", node.nodes_per_leaf);
  if (!v.reading()) return;
  v.not_empty("gpus", node.gpus, "a node needs a GPU");
  if (v.given("name") && node.name.value.empty()) v.problem("name", "the name is empty");
}

void describe(config::Visitor& v, Fabric& fabric) {
  v.title("Fabric");
  v.doc(
      "Leaf switches under one spine; or, with pods, under a spine for each pod, and these under a "
      "core.");
  v.optional("leaf_uplink", fabric.leaf_uplink,
             "of one leaf switch towards its spine, one direction; 0: no limit");
  v.optional("leaf_oversubscription", fabric.leaf_oversubscription,
             "instead of leaf_uplink: NIC bandwidth below a leaf switch over that of its uplink");
  v.optional("leaf_latency", fabric.leaf_latency, "of one leaf switch");
  v.optional("rails", fabric.rails,
             "leaf switches of a leaf: NIC n of each of its nodes hangs on switch n % rails, and "
             "only the spine joins these");
  v.optional("spine_latency", fabric.spine_latency, "of a spine");
  v.optional("leaves_per_pod", fabric.leaves_per_pod,
             "leaf n is under the spine of pod n / leaves_per_pod; 0: all are under one spine");
  v.optional("spine_uplink", fabric.spine_uplink,
             "of one pod towards the core, one direction; 0: no limit");
  v.optional("spine_oversubscription", fabric.spine_oversubscription,
             "instead of spine_uplink: bandwidth that comes from a pod's leaves over that of its "
             "uplink");
  v.optional("core_latency", fabric.core_latency, "of the core");
  v.not_negative("leaf_uplink", fabric.leaf_uplink);
  v.not_negative("leaf_oversubscription", fabric.leaf_oversubscription);
  v.between("leaf_latency", fabric.leaf_latency, Seconds{0}, kLongestOp);
  v.between("rails", fabric.rails, 1, 1 << 12);
  v.between("spine_latency", fabric.spine_latency, Seconds{0}, kLongestOp);
  v.between("leaves_per_pod", fabric.leaves_per_pod, 0, 1 << 16);
  v.not_negative("spine_uplink", fabric.spine_uplink);
  v.not_negative("spine_oversubscription", fabric.spine_oversubscription);
  v.between("core_latency", fabric.core_latency, Seconds{0}, kLongestOp);
  if (!v.reading()) return;
  if (fabric.leaf_uplink.value > 0 && fabric.leaf_oversubscription > 0) {
    v.problem("leaf_oversubscription", "`leaf_uplink` says it too", "give one of the two");
  }
  if (fabric.spine_uplink.value > 0 && fabric.spine_oversubscription > 0) {
    v.problem("spine_oversubscription", "`spine_uplink` says it too", "give one of the two");
  }
  for (const char* key : {"spine_uplink", "spine_oversubscription", "core_latency"}) {
    if (fabric.leaves_per_pod > 0 || !v.given(key)) continue;
    v.problem(key, "a fabric without pods has one spine and no core", "give `leaves_per_pod`");
  }
}

void describe(config::Visitor& v, OverrideEntry& pair) {
  v.title("Override");
  v.doc(
      "Another path between two nodes, or between all nodes of two entries of `nodes`, both "
      "directions. Of several for one pair the last counts.");
  v.required("between", pair.between, "two names");
  v.optional("bandwidth", pair.bandwidth, "a limit of its own for each pair of nodes");
  v.optional("latency", pair.latency, "one way, of NICs and fabric together");
  if (pair.bandwidth) v.positive("bandwidth", *pair.bandwidth);
  if (pair.latency.value) v.between("latency", *pair.latency.value, Seconds{0}, kLongestOp);
  if (!v.reading()) return;
  if (v.given("between") && pair.between.value.size() != 2) {
    v.problem("between", "expected two names of nodes");
  }
  if (!v.given("bandwidth") && !v.given("latency")) {
    v.problem("", "the override changes nothing", "give `bandwidth` or `latency`");
  }
}

void describe(config::Visitor& v, StagingEntry& staging) {
  v.title("Host staging");
  v.doc("Two vendors without a common communication library talk through host memory.");
  v.required("vendors", staging.vendors, "two vendors of GPU types");
  v.required("bandwidth", staging.bandwidth, "per GPU and direction");
  v.optional("latency", staging.latency, "one way, on top of the links that it passes");
  v.positive("bandwidth", staging.bandwidth);
  v.between("latency", staging.latency, Seconds{0}, kLongestOp);
  if (!v.reading() || !v.given("vendors")) return;
  const auto& names = staging.vendors.value;
  if (names.size() != 2 || names[0].value == names[1].value) {
    v.problem("vendors", "expected two different vendors");
  }
}

void describe(config::Visitor& v, ObjectStorage& storage) {
  v.title("Object storage");
  v.required("bandwidth", storage.bandwidth, "read or write");
  v.optional("scope", storage.scope, "whether all nodes share the bandwidth");
  v.optional("latency", storage.latency, "until the first byte");
  v.positive("bandwidth", storage.bandwidth);
  v.between("latency", storage.latency, Seconds{0}, kLongestOp);
}

void describe(config::Visitor& v, ClusterFile& file) {
  v.schema("orrery/cluster", 1);
  v.title("Cluster");
  v.doc("Which GPUs are in which nodes and what connects them.");
  v.required("name", file.name, "for tables");
  v.optional("source", file.source, "where the description comes from");
  v.required("nodes", file.nodes, "device ids count through them in order");
  v.optional("fabric", file.fabric, "switches above the NICs");
  v.optional("overrides", file.overrides, "pairs of nodes with another path");
  v.optional("host_staging", file.host_staging, "pairs of vendors that talk through host memory");
  v.optional("storage", file.storage, "object storage");
  v.optional("gpus", file.gpus, "GPU types that the library lacks or has otherwise");
  v.optional("links", file.links, "link classes that the library lacks or has otherwise");
  v.not_empty("nodes", file.nodes, "a cluster needs a node");
}

void describe(config::Visitor& v, GpuFile& file) {
  v.schema("orrery/gpus", 1);
  v.title("GPU types");
  v.required("gpus", file.gpus, "by name");
}

void describe(config::Visitor& v, LinkFile& file) {
  v.schema("orrery/links", 1);
  v.title("Link classes");
  v.required("links", file.links, "by name");
}

const std::set<std::string>& one_or_many_keys() {
  static const std::set<std::string> kKeys{"gpus", "domains", "pcie", "nics"};
  return kKeys;
}

bool read_cluster_file(config::Value tree, ClusterFile& file, config::Diagnostics& diagnostics) {
  for (config::Value::Entry& entry : tree.entries) {
    if (entry.key != "nodes") continue;
    for (config::Value& node : entry.value.items) {
      for (config::Value::Entry& field : node.entries) {
        if (!field.value.is_map() || !one_or_many_keys().contains(field.key)) continue;
        const config::Position at = field.value.at;
        field.value = config::Value::list({std::move(field.value)}, at);
      }
    }
  }
  return config::describe_value(tree, file, diagnostics);
}

}  // namespace orrery::models
