#include "calibration/importers/infragraph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "models/spec/topology.h"

namespace orrery::calibration::infragraph_test {
namespace {

const models::Library& library() {
  static const models::Library kLibrary = [] {
    config::Diagnostics problems;
    return models::load_library(models::default_library_root(), problems);
  }();
  return kLibrary;
}

std::string file_with(const std::string& name, const std::string& text) {
  const std::string path =
      ::testing::TempDir() + "orrery_infragraph_" + std::to_string(::getpid()) + "_" + name;
  std::ofstream(path) << text;
  return path;
}

std::string first(const config::Diagnostics& problems) {
  if (problems.empty()) return "";
  const config::Problem& problem = problems.problems().front();
  return fmt::format("{}:{}: {}", problem.at.line, problem.at.column, problem.what);
}

/// The first problem of a file.
std::string refusal(const std::string& text, const InfraNames& names = {}) {
  config::Diagnostics problems;
  const ImportedCluster out =
      import_infragraph(file_with("refused.yaml", text), names, library(), problems);
  EXPECT_EQ(out.yaml.empty(), !problems.empty());
  return first(problems);
}

struct Loaded {
  models::Cluster cluster;
  std::vector<std::string> notes;
  std::string yaml;
  bool noted(const std::string& part) const {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(part) != std::string::npos;
    });
  }
};

/// The cluster that the written file loads as.
Loaded load(const std::string& text, const InfraNames& names = {},
            const std::string& file = "in.yaml") {
  config::Diagnostics problems;
  ImportedCluster out = import_infragraph(file_with(file, text), names, library(), problems);
  EXPECT_EQ(first(problems), "");
  models::Cluster cluster =
      models::load_cluster(file_with("out.yaml", out.yaml), library(), {}, problems);
  EXPECT_EQ(first(problems), "") << out.yaml;
  return {std::move(cluster), std::move(out.notes), std::move(out.yaml)};
}

std::string replaced(std::string text, const std::string& before, const std::string& after) {
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return at == std::string::npos ? text : text.replace(at, before.size(), after);
}

/// Two hosts like DGX H100 on each of two leaf switches below two spines: 16 x 400 Gb/s below a
/// leaf, 4 x 800 Gb/s above it.
const char* const kClos = R"(name: small clos
devices:
  - name: host
    components:
      - {name: cpu, count: 2, choice: cpu}
      - {name: gpu, description: H100-80GB, count: 8, choice: xpu}
      - {name: nvswitch, count: 4, choice: switch}
      - {name: pciesw, count: 4, choice: switch}
      - {name: nic, count: 8, choice: nic}
      - {name: mgmt, count: 1, choice: nic}
    links:
      - {name: nvlink, physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 112.5}}}
      - {name: pcie, physical: {bandwidth: {choice: gigatransfers_per_second, gigatransfers_per_second: 32}}}
      - {name: upi}
    edges:
      - {ep1: {component: cpu}, ep2: {component: cpu}, scheme: many2many, link: upi}
      - {ep1: {component: gpu}, ep2: {component: nvswitch}, scheme: many2many, link: nvlink}
      - {ep1: {component: "pciesw[0:2]"}, ep2: {component: "cpu[0]"}, scheme: many2many, link: pcie}
      - {ep1: {component: "pciesw[2:4]"}, ep2: {component: "cpu[1]"}, scheme: many2many, link: pcie}
      - {ep1: {component: pciesw}, ep2: {component: "gpu[0::2]"}, scheme: one2one, link: pcie}
      - {ep1: {component: pciesw}, ep2: {component: "gpu[1::2]"}, scheme: one2one, link: pcie}
      - {ep1: {component: pciesw}, ep2: {component: "nic[0::2]"}, scheme: one2one, link: pcie}
      - {ep1: {component: pciesw}, ep2: {component: "nic[1::2]"}, scheme: one2one, link: pcie}
      - {ep1: {component: "cpu[0]"}, ep2: {component: mgmt}, scheme: one2one, link: pcie}
  - name: switch
    components:
      - {name: asic, count: 1, choice: custom, custom: {type: asic}}
      - {name: port, count: 32, choice: port}
    links:
      - {name: board, physical: {latency: {choice: ns, ns: 250}}}
    edges:
      - {ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: board}
links:
  - name: down
    physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}}
  - name: up
    physical:
      bandwidth: {choice: gigabits_per_second, gigabits_per_second: 800}
      latency: {choice: us, us: 0.1}
instances:
  - {name: node, device: host, count: 4}
  - {name: leaf, device: switch, count: 2}
  - {name: spine, device: switch, count: 2}
edges:
  - {ep1: {instance: "node[0:2]", component: nic}, ep2: {instance: "leaf[0]", component: "port[0:16]"}, scheme: one2one, link: down}
  - {ep1: {instance: "node[2:4]", component: nic}, ep2: {instance: "leaf[1]", component: "port[0:16]"}, scheme: one2one, link: down}
  - {ep1: {instance: "leaf[0]", component: "port[16:20]"}, ep2: {instance: spine, component: "port[0:2]"}, scheme: one2one, link: up}
  - {ep1: {instance: "leaf[1]", component: "port[16:20]"}, ep2: {instance: spine, component: "port[2:4]"}, scheme: one2one, link: up}
)";

const InfraNames kPcie{{}, {{"pcie", "pcie5-x16"}}};

TEST(InfraGraph, AHostBecomesANodeWithItsDomainSlotsAndNics) {
  const Loaded out = load(kClos, kPcie);
  EXPECT_EQ(out.cluster.name, "small clos");
  ASSERT_EQ(out.cluster.nodes.size(), 4u);
  EXPECT_EQ(out.cluster.size(), 32);
  EXPECT_EQ(out.cluster.gpu_types[0].name, "H100-80GB") << "the description names it";
  const models::Node& node = out.cluster.nodes[1];
  EXPECT_EQ(node.name, "node-1");
  ASSERT_EQ(node.domains.size(), 1u);
  EXPECT_EQ(node.domains[0].members.size(), 8u);
  const models::LinkClass& port = out.cluster.links.at(node.domains[0].link);
  EXPECT_EQ(port.bandwidth.value, 450e9) << "four links of 112.5 GB/s side by side";
  EXPECT_EQ(port.efficiency, 0.8);
  ASSERT_EQ(node.pcie.size(), 4u);
  EXPECT_EQ(node.pcie[1].members, (std::vector<int>{2, 3}));
  EXPECT_EQ(node.pcie[1].link, "pcie5-x16");
  EXPECT_EQ(node.pcie[1].uplink, "") << "NICs are below the switches, too";
  ASSERT_EQ(node.nics.size(), 8u);
  EXPECT_EQ(node.nics[3].members, (std::vector<int>{2, 3})) << "below their PCIe switch";
  EXPECT_EQ(out.cluster.links.at(node.nics[3].link).bandwidth.value, 50e9);
  EXPECT_TRUE(out.noted("device 'host': 'mgmt[0]' has no edge to a switch"));
  EXPECT_TRUE(out.noted("link 'down': latency and efficiency are assumed"));
}

TEST(InfraGraph, OversubscriptionFollowsFromTheLinks) {
  const Loaded out = load(kClos, kPcie);
  EXPECT_EQ(out.cluster.nodes[0].leaf, 0);
  EXPECT_EQ(out.cluster.nodes[1].leaf, 0);
  EXPECT_EQ(out.cluster.nodes[2].leaf, 1);
  EXPECT_DOUBLE_EQ(out.cluster.fabric.leaf_oversubscription, 2) << "16 x 400 over 4 x 800";
  EXPECT_NEAR(out.cluster.fabric.leaf_latency.value, 0.5e-6, 1e-15) << "in and out of the asic";
  EXPECT_NEAR(out.cluster.fabric.spine_latency.value, 0.7e-6, 1e-15) << "and two cables";
  const models::Topology topology(out.cluster);
  const auto link = topology.find("leaf0/up");
  EXPECT_NEAR(topology.links()[link].bandwidth.value, 0.9 * 4 * 100e9, 1);
  EXPECT_TRUE(out.noted("2 leaf, 2 spine and 0 core switches"));
  // A spine that is wide enough is no limit.
  const Loaded wide =
      load(replaced(kClos, "gigabits_per_second: 800", "gigabits_per_second: 1600"), kPcie);
  EXPECT_EQ(wide.cluster.fabric.leaf_oversubscription, 0);
  // A leaf with fewer hosts has as wide an uplink.
  const Loaded uneven = load(
      replaced(kClos, "node[2:4]", "node[2:3]")
          .replace(std::string(kClos).find("device: host, count: 4"), 22, "device: host, count: 3"),
      kPcie);
  EXPECT_EQ(uneven.cluster.fabric.leaf_oversubscription, 0);
  EXPECT_NEAR(uneven.cluster.fabric.leaf_uplink.value, 0.9 * 4 * 100e9, 1);
  EXPECT_TRUE(uneven.noted("one2one of 8 and 16 ends joins the first 8"));
}

TEST(InfraGraph, ClassesOfTheLibraryReplaceTheFilesNumbers) {
  InfraNames names = kPcie;
  names.links["down"] = "infiniband-200";
  names.links["nvlink"] = "nvlink4";
  const Loaded out = load(kClos, names);
  EXPECT_EQ(out.cluster.nodes[0].nics[0].link, "infiniband-200");
  EXPECT_EQ(out.cluster.nodes[0].domains[0].link, "nvlink4");
  EXPECT_EQ(out.cluster.fabric.leaf_oversubscription, 0) << "16 x 200 over 4 x 800";
  EXPECT_TRUE(out.noted("link 'down' of the file: 50 GB/s; class infiniband-200: 25 GB/s"));
  EXPECT_FALSE(out.noted("links 'nvlink' of the file")) << "they say the same";
}

/// Three boxes of four GPUs in a mesh, with two cards of two ports, one on each of two switches;
/// JSON, as the service writes it.
const char* const kBoxes = R"({"infrastructure": {
  "devices": [
   {"name": "box", "components": [
     {"name": "cpu", "count": 1, "choice": "cpu", "cpu": {}},
     {"name": "npu", "count": 4, "choice": "npu"},
     {"name": "card", "count": 2, "choice": "device"}],
    "links": [{"name": "xgmi", "physical": {"bandwidth": {"gigabytes_per_second": 64}, "latency": {"ns": 500}}},
              {"name": "pcie", "physical": {"bandwidth": {"gigabytes_per_second": 63}}}],
    "edges": [
     {"ep1": {"component": "npu"}, "ep2": {"component": "npu"}, "scheme": "many2many", "link": "xgmi"},
     {"ep1": {"component": "npu"}, "ep2": {"component": "cpu"}, "scheme": "many2many", "link": "pcie"},
     {"ep1": {"device": "card[0:2]", "component": "slot[0]"}, "ep2": {"component": "cpu[0]"}, "scheme": "many2many", "link": "pcie"}]},
   {"name": "card", "components": [
     {"name": "slot", "count": 1, "choice": "custom", "custom": {"type": "pcie"}},
     {"name": "port", "count": 2, "choice": "port"}],
    "links": [{"name": "trace"}],
    "edges": [{"ep1": {"component": "slot"}, "ep2": {"component": "port"}, "scheme": "many2many", "link": "trace"}]},
   {"name": "tor", "components": [{"name": "asic", "count": 1, "choice": "switch"}], "links": [], "edges": []}],
  "links": [{"name": "eth", "physical": {"bandwidth": {"gigabits_per_second": 100}}}],
  "instances": [{"name": "box", "device": "box", "count": 3}, {"name": "tor", "device": "tor", "count": 2}],
  "edges": [
   {"ep1": {"instance": "box", "component": "card[0].port"}, "ep2": {"instance": "tor[0]", "component": "asic"}, "scheme": "many2many", "link": "eth"},
   {"ep1": {"instance": "box", "component": "card[1].port"}, "ep2": {"instance": "tor[1]", "component": "asic"}, "scheme": "many2many", "link": "eth"}]},
 "annotations": {"nodes": []}})";

const InfraNames kMi300{{{"box", "MI300X-192GB"}}, {}};

TEST(InfraGraph, MeshesDevicesWithinDevicesAndRailsAreRead) {
  const Loaded out = load(kBoxes, kMi300, "boxes.json");
  const models::Node& node = out.cluster.nodes[2];
  EXPECT_EQ(node.gpu_types.size(), 4u);
  const models::LinkClass& port = out.cluster.links.at(node.domains[0].link);
  EXPECT_EQ(port.bandwidth.value, 3 * 64e9);
  EXPECT_NEAR(port.latency.value, 0.5e-6, 1e-15) << "one link from GPU to GPU";
  EXPECT_TRUE(out.noted("the 3 links of a GPU to the others count as one port"));
  ASSERT_EQ(node.pcie.size(), 1u);
  ASSERT_EQ(node.nics.size(), 2u);
  EXPECT_EQ(node.nics[0].members.size(), 4u);
  EXPECT_EQ(out.cluster.links.at(node.nics[0].link).bandwidth.value, 25e9)
      << "both ports of a card";
  EXPECT_EQ(out.cluster.fabric.rails, 2);
  EXPECT_EQ(node.leaf, 0);
  EXPECT_TRUE(out.noted("no switch joins the rails"));
  EXPECT_TRUE(out.noted("annotations"));
}

TEST(InfraGraph, CardsOnTwoSwitchesMakeOneLeafOfThem) {
  const std::string text =
      replaced(replaced(kBoxes, "card[0].port", "card.port[0]"), "card[1].port", "card.port[1]");
  const Loaded out = load(text, kMi300);
  EXPECT_EQ(out.cluster.fabric.rails, 1);
  EXPECT_EQ(out.cluster.nodes[1].nics.size(), 2u);
  EXPECT_TRUE(out.noted("leaf switches that share a host count as one"));
}

/// Hosts of one GPU, each with a NIC, and switches that are one component.
std::string plain(const std::string& instances, const std::string& edges) {
  return "devices:\n"
         "  - {name: h, components: [{name: A100-80GB, count: 1, choice: xpu},\n"
         "      {name: nic, count: 1, choice: nic}], links: [{name: p, physical: {bandwidth: "
         "{gigabytes_per_second: 32}}}],\n"
         "      edges: [{ep1: {component: A100-80GB}, ep2: {component: nic}, scheme: one2one, "
         "link: p}]}\n"
         "  - {name: s, components: [{name: x, count: 1, choice: switch}]}\n"
         "  - {name: store, components: [{name: cpu, count: 1, choice: cpu}, {name: nic, count: 1, "
         "choice: nic}]}\n"
         "links: [{name: e, physical: {bandwidth: {gigabits_per_second: 100}}}]\n"
         "instances: [" +
         instances + "]\nedges:\n" + edges;
}
std::string edge(const std::string& a, const std::string& b) {
  return fmt::format(
      "  - {{ep1: {{instance: \"{}\", component: {}}}, ep2: {{instance: \"{}\", component: {}}}, "
      "scheme: many2many, link: e}}\n",
      a, a.starts_with("h") || a.starts_with("store") ? "nic" : "x", b,
      b.starts_with("h") ? "nic" : "x");
}

TEST(InfraGraph, CoreSwitchesMakePods) {
  // Two pods of two leaves with two hosts each; a leaf has one uplink, a pod one to the core.
  std::string edges;
  for (int host = 0; host < 8; ++host) {
    edges += edge(fmt::format("h[{}]", host), fmt::format("l[{}]", host / 2));
  }
  edges += edge("l[0:2]", "s[0]") + edge("l[2:4]", "s[1]") + edge("s", "c") + edge("store", "l[0]");
  const std::string text = plain(
      "{name: h, device: h, count: 8}, {name: l, device: s, count: 4}, {name: s, device: s, count: "
      "2}, {name: c, device: s, count: 1}, {name: store, device: store, count: 1}",
      edges);
  const Loaded out = load(text);
  EXPECT_EQ(out.cluster.fabric.leaves_per_pod, 2);
  EXPECT_DOUBLE_EQ(out.cluster.fabric.leaf_oversubscription, 2);
  EXPECT_DOUBLE_EQ(out.cluster.fabric.spine_oversubscription, 2)
      << "two leaf uplinks over one, not four NICs";
  EXPECT_EQ(out.cluster.nodes[5].leaf, 2);
  EXPECT_EQ(out.cluster.nodes[0].pcie.size(), 1u);
  EXPECT_TRUE(out.noted("instance 'store' has no GPUs and is no switch"));
  EXPECT_TRUE(out.noted("4 leaf, 2 spine and 1 core switches"));
}

TEST(InfraGraph, WhatAClusterCannotSayIsRefusedAtItsPlace) {
  const std::string hosts = "{name: h, device: h, count: 2}";
  EXPECT_EQ(refusal(plain(hosts, edge("h[0]", "h[1]"))),
            "10:22: joins hosts 'h[0]' and 'h[1]' without a switch");
  EXPECT_EQ(refusal(plain(hosts + ", {name: s, device: s, count: 2}", edge("h[0]", "s[0]"))),
            "8:20: 'h[1]' has no edge to a switch");
  EXPECT_EQ(refusal(plain(hosts + ", {name: s, device: s, count: 2}",
                          edge("h[0]", "s[0]") + edge("h[1]", "s[1]"))),
            "8:20: no switch joins 'h[0]' and 'h[1]'");
  EXPECT_EQ(refusal(plain(hosts + ", {name: s, device: s, count: 2}",
                          edge("h[0]", "s[0]") + edge("h[1]", "s[1]") + edge("s[0]", "s[1]"))),
            "8:52: 's[0]' and 's[1]' of one level are joined without a spine");
  EXPECT_EQ(refusal(plain(hosts + ", {name: s, device: s, count: 4}",
                          edge("h", "s[0]") + edge("s[0]", "s[1]") + edge("s[1]", "s[2]") +
                              edge("s[2]", "s[3]"))),
            "8:52: switch 's[3]' is 4 levels above the hosts");
  EXPECT_EQ(refusal(plain(hosts, edge("h", "t"))), "10:60: unknown instance 't'");
  EXPECT_EQ(refusal(plain("{name: s, device: s, count: 2}", edge("s[0]", "s[1]"))),
            "0:0: no instance has an xpu component");
  EXPECT_EQ(refusal(kBoxes), "3:13: the type of GPU 'npu' of device 'box' is not known");
  EXPECT_EQ(refusal(kClos), "13:16: link 'pcie' has 32 GT/s, and no number of lanes");
  EXPECT_EQ(refusal(kClos, {{{"hots", "H100-80GB"}}, {{"pcie", "pcie5-x16"}}}),
            "0:0: no device with GPUs is named 'hots'");
  EXPECT_EQ(refusal(kClos, {{}, {{"pcie", "pcie5-x16"}, {"nvlnk", "nvlink4"}}}),
            "0:0: the file has no link 'nvlnk'");
}

TEST(InfraGraph, BrokenFilesAreRefusedAtTheirPlace) {
  const auto broken = [](const std::string& before, const std::string& after) {
    return refusal(replaced(kClos, before, after), kPcie);
  };
  EXPECT_EQ(refusal("- 1\n"), "1:1: expected a map, got a list");
  EXPECT_EQ(broken("device: host, count: 4", "device: hots, count: 4"),
            "41:26: unknown device 'hots'");
  EXPECT_EQ(broken("port[0:16]", "prt[0:16]"), "45:90: device 'switch' has no component 'prt'");
  EXPECT_EQ(broken("port[0:16]", "port[0:40]"),
            "45:90: 'port[0:40]' is no part of the 32 of device 'switch'");
  EXPECT_EQ(broken("node[0:2]", "node[-1]"),
            "45:22: 'node[-1]' is no part of the 4 of instance "
            "'node'");
  EXPECT_EQ(broken("node[0:2]", "node[0:2"),
            "45:22: 'node[0:2' is no part of the 4 of instance "
            "'node'");
  EXPECT_EQ(broken("scheme: one2one, link: down", "scheme: one2one, link: don"),
            "45:128: unknown link 'don'");
  EXPECT_EQ(broken("scheme: one2one, link: down", "scheme: ring, link: down"),
            "45:113: scheme 'ring' is not read");
  EXPECT_EQ(broken("count: 32, choice: port", "cont: 32, choice: port"),
            "28:9: missing key 'count'");
  EXPECT_EQ(broken("choice: gigabits_per_second,", "choice: gigabit,"),
            "35:36: unknown value 'gigabit'");
  EXPECT_EQ(broken("{name: asic, count: 1, choice: custom, custom: {type: asic}}",
                   "{name: switch, count: 1, choice: device}"),
            "27:16: device 'switch' contains itself");
}

TEST(InfraGraph, ProductsOfCountsAreLimited) {
  const auto broken = [](const std::string& before, const std::string& after) {
    return refusal(replaced(kClos, before, after), kPcie);
  };
  EXPECT_EQ(broken("device: switch, count: 2", "device: switch, count: 100000"),
            "42:41: more than 100000 machines");
  EXPECT_EQ(broken("{name: port, count: 32, choice", "{name: port, count: 131072, choice"),
            "28:29: the devices have more than 131072 parts");
  EXPECT_EQ(broken("{name: port, count: 32, choice", "{name: port, count: 2000000000, choice"),
            "28:29: must be from 0 to 131072, is 2000000000");
  EXPECT_EQ(refusal(plain("{name: h, device: h, count: 2000}, {name: s, device: s, count: 2000}",
                          edge("h", "s"))),
            "10:88: the file has more than 2097152 edges");
  EXPECT_EQ(refusal(replaced(plain("{name: h, device: h, count: 2000}", "  []\n"),
                             "count: 1, choice: xpu", "count: 1000, choice: xpu")),
            "8:20: the hosts have more than 1048576 GPUs");
  // Ends cost something though nothing is joined.
  std::string edges;
  for (int i = 0; i < 100; ++i) {
    edges += replaced(edge("s", "h[0]"), "many2many", "one2one");
  }
  EXPECT_EQ(
      refusal(plain("{name: h, device: h, count: 1}, {name: s, device: s, count: 90000}", edges)),
      "103:22: the edges name more than 8388608 ends");
}

}  // namespace
}  // namespace orrery::calibration::infragraph_test
