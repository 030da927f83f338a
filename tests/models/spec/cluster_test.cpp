#include <gtest/gtest.h>

#include <algorithm>

#include "models/spec/cluster_text.h"
#include "tests/models/spec/support.h"

namespace orrery::models::cluster_test {
namespace {

const char* const kTwo = R"(schema: orrery/cluster/1
name: two
nodes:
  - {name: n, count: 2, gpus: {type: A100, count: 2}, domains: {link: nvlink}, nics: {link: ib}}
)";

std::string with(const std::string& more) { return kTwo + more; }

/// A cluster of one node entry with `fields`.
std::string node(const std::string& fields) {
  return "schema: orrery/cluster/1\nname: c\nnodes:\n  - {name: n, " + fields + "}\n";
}

TEST(ClusterYaml, DevicesAreNumberedNodeByNodePositionByPosition) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: c
nodes:
  - name: a
    count: 2
    gpus: [{type: A100, count: 2}, {type: MI250}]
    pcie: {link: pcie}
    nics: {link: ib}
    nvme: {read: 3.5 GB/s, write: 2 GB/s, capacity: 4 TB}
    host_memory: {capacity: 1 TiB, bandwidth: 50 GB/s}
    region: east
    leaf: 3
  - {name: b, gpus: {type: MI250}, nics: {link: ib}}
storage: {bandwidth: 1.2 GB/s, scope: per_node, latency: 10 ms}
)");
  ASSERT_EQ(cluster.size(), 7);
  EXPECT_EQ(cluster.nodes[0].name, "a-0");
  EXPECT_EQ(cluster.nodes[2].name, "b");
  EXPECT_EQ(cluster.gpu({2}).name, "MI250");
  EXPECT_EQ(cluster.gpu({3}).name, "A100");
  EXPECT_EQ(cluster.device({5}).position, 2);
  EXPECT_EQ(cluster.device({5}).node.value, 1);
  EXPECT_EQ(cluster.devices_of(NodeId{2}), std::vector<DeviceId>{{6}});
  EXPECT_EQ(cluster.nodes[1].nvme_capacity.value, 4e12);
  EXPECT_EQ(cluster.nodes[1].leaf, 3);
  EXPECT_EQ(cluster.nodes[2].host_memory.value, 0);
  ASSERT_TRUE(cluster.storage.has_value());
  EXPECT_EQ(cluster.storage->scope, BandwidthScope::per_node);
}

TEST(ClusterYaml, ClustersTooLargeToHandleAreRefusedAtOnce) {
  std::string gpus = "{type: A100, count: 1024}";
  for (int i = 0; i < 4; ++i) gpus += ", {type: A100, count: 1024}";
  EXPECT_EQ(problems_of(node("gpus: [" + gpus + "], pcie: {link: pcie}")),
            "c.yaml:4:12: node 'n' has 5120 GPUs, at most 4096 are possible\n");
  const std::string many = node("count: 65536, gpus: {type: A100}, nics: {link: ib}");
  EXPECT_NE(problems_of(many + "overrides: [{between: [n, n], bandwidth: 1 GB/s}]\n")
                .find("c.yaml:5:23: overrides of more than 4194304 pairs of nodes"),
            std::string::npos);
  EXPECT_EQ(problems_of(node("gpus: {type: A100}, leaf: 2147483647")),
            "c.yaml:4:41: must be from 0 to 65536, is 2147483647\n");
}

TEST(ClusterYaml, LocalTypesExtendTheLibraryOrChangeABase) {
  const Cluster cluster = cluster_of(R"(schema: orrery/cluster/1
name: c
nodes: [{name: n, gpus: [{type: A100}, {type: Mine}], domains: {link: nvlink}}]
gpus:
  A100: {base: A100, efficiency: 0.3}
  Mine: {vendor: acme, peak: {bf16: 1 TFLOPS}, memory: 1 GiB, memory_bandwidth: 1 GB/s, source: x}
links:
  nvlink: {base: nvlink, bandwidth: 100 GB/s}
)");
  EXPECT_EQ(cluster.gpu_types[0].efficiency, 0.3);
  EXPECT_EQ(cluster.gpu_types[0].memory, 80_GiB);
  EXPECT_EQ(cluster.gpu_types[1].vendor, "acme");
  EXPECT_EQ(cluster.links.at("nvlink").bandwidth, 100_GBps);
  EXPECT_EQ(cluster.links.at("nvlink").efficiency, 0.5);
}

TEST(ClusterYaml, AReplacedBandwidthMakesAClassOfItsOwn) {
  const Cluster cluster =
      cluster_of(node("gpus: {type: A100, count: 2}, domains: {link: pcie, bandwidth: 24 GB/s}"));
  EXPECT_EQ(cluster.nodes[0].domains[0].link, "pcie@24 GB/s");
  EXPECT_EQ(cluster.links.at("pcie@24 GB/s").bandwidth, 24_GBps);
}

TEST(ClusterText, NicsOfSeveralEntriesReadBack) {
  const Cluster cluster =
      cluster_of(node("gpus: {type: A100, count: 2}, domains: {link: nvlink}, "
                      "nics: [{link: ib, count: 2}, {link: ib}, {link: ib, members: [1]}]"));
  ASSERT_EQ(cluster.nodes.size(), 1U);
  EXPECT_EQ(cluster.nodes[0].nics.size(), 4U);
  config::Diagnostics problems;
  const config::Value tree = config::load_value_text(dump_cluster(cluster), "d.yaml", problems);
  const Cluster again = read_cluster(tree, {}, problems);
  for (const config::Problem& problem : problems.problems()) {
    ADD_FAILURE() << config::to_string(problem);
  }
  EXPECT_EQ(again.hash, cluster.hash);
}

TEST(ClusterHash, IgnoresCommentsNameSourceLayoutAndUnusedTypes) {
  const std::string hash = cluster_of(kTwo).hash;
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(cluster_of(R"(# a comment
schema: orrery/cluster/1
name: other name
source: somewhere
nodes:
  - name: n   # names count
    count: 2
    gpus: [{type: A100, count: 1}, {type: A100, count: 1}]
    domains: [{link: nvlink, members: [0, 1]}]
    nics: [{link: ib, count: 1, bandwidth: null}]
links:
  unused: {bandwidth: 1 GB/s, latency: 1 us, source: x}
)")
                .hash,
            hash);
}

TEST(ClusterHash, ChangesWithEveryNumberThatMatters) {
  std::vector<std::string> hashes{cluster_of(kTwo).hash};
  for (const char* more :
       {"storage: {bandwidth: 1 GB/s}\n", "fabric: {leaf_latency: 1 us}\n",
        "fabric: {spine_latency: 1 us}\n", "fabric: {leaf_uplink: 2 GB/s}\n",
        "fabric: {leaf_oversubscription: 2}\n", "fabric: {leaves_per_pod: 2}\n",
        "fabric: {leaves_per_pod: 2, core_latency: 1 us}\n",
        "fabric: {leaves_per_pod: 2, spine_uplink: 1 GB/s}\n",
        "fabric: {leaves_per_pod: 2, spine_oversubscription: 2}\n",
        "overrides: [{between: [n-0, n-1], bandwidth: 1 GB/s}]\n",
        "gpus: {A100: {base: A100, price: $1/h}}\n", "links: {ib: {base: ib, latency: 6 us}}\n",
        "links: {ib: {base: ib, shared: true}}\n"}) {
    hashes.push_back(cluster_of(with(more)).hash);
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

struct Case {
  const char* name;
  std::string text;
  const char* expected;
};

class ClusterProblem : public ::testing::TestWithParam<Case> {};

TEST_P(ClusterProblem, IsReportedAtItsPlace) {
  const std::string found = problems_of(GetParam().text);
  EXPECT_NE(found.find(GetParam().expected), std::string::npos) << found;
}

INSTANTIATE_TEST_SUITE_P(
    All, ClusterProblem,
    ::testing::Values(
        Case{"UnknownGpu", node("gpus: {type: A10}"),
             "c.yaml:4:28: unknown GPU type 'A10' (did you mean 'A100'?)"},
        Case{"UnknownLink", node("gpus: {type: A100}, nics: {link: ibb}"),
             "unknown link class 'ibb' (did you mean 'ib'?)"},
        Case{"ZeroCount", node("gpus: {type: A100, count: 0}"),
             "c.yaml:4:41: must be from 1 to 1024, is 0"},
        Case{"NoGpu", node("gpus: []"), "a node needs a GPU"},
        Case{"NoNode", "schema: orrery/cluster/1\nname: c\nnodes: []\n",
             "c.yaml:3:8: a cluster needs a node"},
        Case{"DuplicateName", with("  - {name: n-1, gpus: {type: A100}, nics: {link: ib}}\n"),
             "c.yaml:5:12: duplicate node name 'n-1'"},
        Case{"MemberOutOfRange",
             node("gpus: {type: A100, count: 2}, domains: {link: nvlink, members: [0, 2]}"),
             "member 2 of a node with 2 GPUs (members are 0 to 1)"},
        Case{"MemberTwice",
             node("gpus: {type: A100, count: 2}, domains: {link: nvlink, members: [1, 1]}"),
             "member 1 is named twice"},
        Case{"NoPathInside", node("gpus: {type: A100, count: 2}"),
             "c.yaml:4:12: no path joins GPUs 0 and 1 of node 'n'"},
        Case{"TwoSwitches",
             node("gpus: {type: A100, count: 2}, pcie: [{link: pcie}, {link: pcie, members: [1]}]"),
             "GPU 1 is behind two PCIe switches"},
        Case{"NoNic", with("  - {name: m, gpus: {type: A100}}\n"),
             "c.yaml:5:12: GPU 0 of node 'm' has no NIC, and the cluster has 3 nodes"},
        Case{"MoreNicsThanGpus", node("gpus: {type: A100}, nics: {link: ib, count: 2}"),
             "2 NICs for 1 GPUs"},
        Case{"OverrideOfUnknownNode",
             with("overrides: [{between: [n-0, n-7], bandwidth: 1 GB/s}]\n"),
             "c.yaml:5:29: unknown node 'n-7' (did you mean"},
        Case{"OverrideWithItself", with("overrides: [{between: [n-0, n-0], bandwidth: 1 GB/s}]\n"),
             "an override between a node and itself"},
        Case{"OverrideOfAThousandYears",
             with("overrides: [{between: [n-0, n-1], latency: 1e10 s}]\n"),
             "c.yaml:5:44: must be from 0 ns to 1 h, is 1e+19 ns"},
        Case{"LaunchOfAThousandYears", with("gpus: {A100: {base: A100, launch: 1e10 s}}\n"),
             "c.yaml:5:35: must be from 0 ns to 1 h, is 1e+19 ns"},
        Case{"LatencyOfAThousandYears", with("links: {ib: {base: ib, latency: 1e10 s}}\n"),
             "c.yaml:5:33: must be from 0 ns to 1 h, is 1e+19 ns"},
        Case{"OverrideWithoutEffect", with("overrides: [{between: [n-0, n-1]}]\n"),
             "the override changes nothing"},
        Case{"OverrideFasterThanItsNics",
             with("overrides: [{between: [n-0, n-1], latency: 1 us}]\n"),
             "latency is less than the 5 us of NICs and fabric between 'n-0' and 'n-1'"},
        Case{"StagingOfUnknownVendor",
             with("host_staging: [{vendors: [nvidia, amd], bandwidth: 1 GB/s}]\n"),
             "c.yaml:5:35: no GPU of the cluster is of vendor 'amd'"},
        Case{"StagingOfOneVendor",
             with("host_staging: [{vendors: [nvidia, nvidia], bandwidth: 1 GB/s}]\n"),
             "expected two different vendors"},
        Case{"UplinkSaidTwice", with("fabric: {leaf_uplink: 1 GB/s, leaf_oversubscription: 2}\n"),
             "c.yaml:5:54: `leaf_uplink` says it too (give one of the two)"},
        Case{"CoreWithoutPods", with("fabric: {core_latency: 1 us}\n"),
             "c.yaml:5:24: a fabric without pods has one spine and no core (give "
             "`leaves_per_pod`)"},
        Case{"RailWithoutNic", with("fabric: {rails: 4}\n"),
             "c.yaml:4:12: no node has more NICs than 'n', which has 1, and the fabric has 4 rails "
             "(rails are 1 to 1)"},
        Case{"UnknownBase", with("gpus: {X: {base: A1000}}\n"),
             "c.yaml:5:18: unknown GPU type 'A1000' (did you mean 'A100'?)"},
        Case{"IncompleteLocalGpu", with("gpus: {X: {vendor: x}}\n"), "missing key 'peak'"},
        Case{"UnknownDtype", with("gpus: {A100: {base: A100, peak: {bf61: 1 TFLOPS}}}\n"),
             "unknown dtype 'bf61'"},
        Case{"UnknownKey", node("gpu: {type: A100}"), "unknown key 'gpu' (did you mean 'gpus'?)"},
        Case{"MissingUnit", with("storage: {bandwidth: 5}\n"), "missing unit after '5'"},
        Case{"TooManyGpus", node("count: 65536, gpus: {type: A100, count: 32}, pcie: {link: pcie}"),
             "more than 1048576 GPUs"}),
    [](const auto& info) { return info.param.name; });

TEST(ClusterYaml, AllProblemsAreCollected) {
  const std::string found = problems_of(R"(schema: orrery/cluster/1
name: c
nodes:
  - {name: n, gpus: {type: A10}, nics: {link: ibb}}
  - {name: n, gpus: {type: B100}, nics: {link: ib}}
)");
  EXPECT_NE(found.find("'A10'"), std::string::npos) << found;
  EXPECT_NE(found.find("'ibb'"), std::string::npos) << found;
  EXPECT_NE(found.find("'B100'"), std::string::npos) << found;
  EXPECT_NE(found.find("duplicate"), std::string::npos) << found;
}

}  // namespace
}  // namespace orrery::models::cluster_test
