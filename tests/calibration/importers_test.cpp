#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "calibration/importers/nccl_tests.h"
#include "calibration/importers/node_topology.h"
#include "calibration/importers/slurm_topology.h"
#include "models/spec/library.h"

namespace orrery::calibration::importers_test {
namespace {

std::string file_with(const std::string& name, const std::string& text) {
  const std::string path =
      ::testing::TempDir() + "orrery_" + std::to_string(::getpid()) + "_" + name;
  std::ofstream(path) << text;
  return path;
}

std::string first(const config::Diagnostics& problems) {
  if (problems.empty()) return "";
  const config::Problem& problem = problems.problems().front();
  return fmt::format("{}:{}: {}", problem.at.line, problem.at.column, problem.what);
}

/// A run of all_reduce_perf on four GPUs with 10 us and 20 GB/s on the ring's edges.
std::string nccl_text(const std::string& test = "all_reduce_perf") {
  std::string text = "# Collective test starting: " + test + R"(
# nThread 1 nGpus 4 minBytes 1024 maxBytes 67108864 step: 8(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   1001 on    node1 device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   1001 on    node1 device  1 [0x0a] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid   1001 on    node1 device  2 [0x44] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid   1001 on    node1 device  3 [0x4a] NVIDIA A100-SXM4-40GB
#
#                                                     out-of-place              in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
)";
  for (double bytes = 1024; bytes < 1e8; bytes *= 8) {
    const double us = 6 * (10 + bytes / 4 / 20e3);
    text += fmt::format("{:>12.0f} {:>12.0f} float sum -1 {:.4f} 0.1 0.2 0 {:.4f} 0.1 0.2 0\n",
                        bytes, bytes / 4, us, 2 * us);
  }
  return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 8.1\n";
}

TEST(NcclTests, RowsAreReadOutOfPlace) {
  config::Diagnostics problems;
  const ir::MeasurementSet set = read_nccl_tests(file_with("a.txt", nccl_text()), "ib", problems);
  EXPECT_EQ(first(problems), "");
  ASSERT_EQ(set.measurements.size(), 6u);
  EXPECT_EQ(set.machine, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(set.measurements[1].bytes.value, 8192);
  EXPECT_EQ(set.measurements[1].ranks, 4);
  EXPECT_EQ(set.measurements[1].collective, ir::CollectiveKind::all_reduce);
  EXPECT_NEAR(set.measurements[1].wall.value, 6 * (10e-6 + 2048 / 20e9), 1e-9);
}

TEST(NcclTests, ARingBecomesLatencyAndBandwidthOfItsEdges) {
  config::Diagnostics problems;
  const ir::Profile profile =
      import_nccl_tests({file_with("b.txt", nccl_text())}, "nvlink3", problems);
  EXPECT_EQ(first(problems), "");
  ASSERT_EQ(profile.links.size(), 1u);
  EXPECT_EQ(profile.links[0].link_class, "nvlink3");
  EXPECT_NEAR(profile.links[0].latency.value, 10e-6, 1e-7);
  EXPECT_NEAR(profile.links[0].bandwidth.value, 20e9, 1e8);
  ASSERT_EQ(profile.collectives.size(), 1u);
  EXPECT_NEAR(profile.collectives[0].factor, 1, 0.01);
  EXPECT_EQ(profile.collectives[0].ranks, 4);
  EXPECT_EQ(profile.links[0].provenance.source, "measured on nccl-tests");
}

TEST(NcclTests, TheNameOfTheFileSaysTheTestWhereTheTextDoesNot) {
  std::string text = nccl_text();
  text.erase(0, text.find('\n') + 1);
  config::Diagnostics problems;
  const auto named = read_nccl_tests(file_with("all_gather.txt", text), "ib", problems);
  EXPECT_EQ(first(problems), "");
  EXPECT_EQ(named.measurements.at(0).collective, ir::CollectiveKind::all_gather);
  read_nccl_tests(file_with("unknown.txt", text), "ib", problems);
  EXPECT_EQ(first(problems), "0:0: neither the file nor its name says which test it is");
}

TEST(NcclTests, AFileMayHoldSeveralRuns) {
  const std::string once = nccl_text();
  std::string twice = once + nccl_text("all_gather_perf");
  twice.insert(twice.rfind("#\n#      "),
               "#  Rank  4 Group  0 Pid   1001 on    node1 device  4 [0x4b] NVIDIA A100\n");
  config::Diagnostics problems;
  const auto rows = read_nccl_tests(file_with("runs.txt", twice), "ib", problems).measurements;
  EXPECT_EQ(first(problems), "");
  ASSERT_EQ(rows.size(), 12u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].ranks, i < 6 ? 4 : 5) << i;
    EXPECT_EQ(rows[i].collective,
              i < 6 ? ir::CollectiveKind::all_reduce : ir::CollectiveKind::all_gather)
        << i;
  }
  const auto links = [&](const std::string& text) {
    const ir::Profile profile = import_nccl_tests({file_with("f.txt", text)}, "ib", problems);
    EXPECT_EQ(first(problems), "");
    return profile.links;
  };
  const auto one = links(once);
  for (const std::string& text : {once + once, twice}) {
    const auto several = links(text);
    ASSERT_EQ(several.size(), one.size());
    EXPECT_NEAR(several[0].bandwidth / one[0].bandwidth, 1, 1e-6);
    EXPECT_NEAR(several[0].latency / one[0].latency, 1, 1e-6);
  }
  read_nccl_tests(file_with("g.txt", once + nccl_text("sendrecv_perf")), "ib", problems);
  EXPECT_EQ(first(problems), fmt::format("{}:29: 'sendrecv_perf' has no counterpart here",
                                         std::count(once.begin(), once.end(), '\n') + 1));
}

TEST(NcclTests, BrokenFilesAreRefusedAtTheirPlace) {
  config::Diagnostics numbers;
  std::string text = nccl_text();
  text.replace(text.find("float sum -1 ") + 13, 2, "xx");
  read_nccl_tests(file_with("c.txt", text), "ib", numbers);
  EXPECT_EQ(first(numbers).substr(0, 3), "13:");
  config::Diagnostics cut;
  read_nccl_tests(file_with("d.txt", nccl_text() + "1024 256 float sum\n"), "ib", cut);
  EXPECT_NE(first(cut).find("a row of 4 columns"), std::string::npos) << first(cut);
  config::Diagnostics huge;
  text = nccl_text();
  const std::size_t size = text.find("8192");
  ASSERT_NE(size, std::string::npos);
  text.replace(size, 4, "99999999999999999999999");
  read_nccl_tests(file_with("e.txt", text), "ib", huge);
  EXPECT_FALSE(huge.empty());
  config::Diagnostics empty;
  read_nccl_tests(file_with("all_reduce_empty.txt", "nothing\n"), "ib", empty);
  EXPECT_EQ(first(empty), "0:0: lists 0 ranks");
  config::Diagnostics missing;
  read_nccl_tests("/no/such/file", "ib", missing);
  EXPECT_FALSE(missing.empty());
}

/// Two pairs of GPUs with NVLink, a NIC below the switch of each pair.
const char* const kTopo =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\tSYS\tPXB\tSYS\t0-31\t0\n"
    "GPU1\tNV12\t X \tSYS\tSYS\tPXB\tSYS\t0-31\t0\n"
    "GPU2\tSYS\tSYS\t X \tNV12\tSYS\tPIX\t32-63\t1\n"
    "GPU3\tSYS\tSYS\tNV12\t X \tSYS\tPIX\t32-63\t1\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\t\t\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";

NodeNames names() {
  return {"node", "A100-80GB", "nvlink3", "pcie4-x16", "infiniband-200", "a test"};
}

constexpr const char* kPairs =
    "    domains:\n      - {link: nvlink3, members: [0, 1]}\n"
    "      - {link: nvlink3, members: [2, 3]}\n"
    "    pcie:\n      - {link: pcie4-x16, members: [0, 1]}\n"
    "      - {link: pcie4-x16, members: [2, 3]}\n"
    "    nics:\n      - {link: infiniband-200, members: [0, 1]}\n"
    "      - {link: infiniband-200, members: [2, 3]}\n";

TEST(NvidiaTopo, PairsSwitchesAndNicsAreFound) {
  config::Diagnostics problems;
  const NodeTopology topology = read_nvidia_topo(file_with("topo.txt", kTopo), problems);
  EXPECT_EQ(first(problems), "");
  const std::string text = node_yaml(topology, names(), problems);
  EXPECT_EQ(first(problems), "");
  EXPECT_NE(text.find(kPairs), std::string::npos) << text;
  EXPECT_NE(text.find("gpus: {type: A100-80GB, count: 4}"), std::string::npos) << text;
}

TEST(NvidiaTopo, BrokenMatricesAreRefusedAtTheirPlace) {
  const auto problem = [](const std::string& text) {
    config::Diagnostics problems;
    read_nvidia_topo(file_with("bad.txt", text), problems);
    return first(problems);
  };
  EXPECT_EQ(problem("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tQQ\t0\nGPU1\tSYS\t X \t0\n"),
            "2:10: unknown cell 'QQ'");
  EXPECT_EQ(problem("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0\n"), "0:0: no row of GPU1");
  EXPECT_EQ(problem("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X\nGPU1\tSYS\t X \t0\n"),
            "2:1: 1 cells for 2 devices");
  EXPECT_EQ(problem("something else\n"), "0:0: no header with GPU0");
  std::string many = "GPU0";
  for (int i = 1; i <= 300'000; ++i) many += fmt::format(" GPU{}", i);
  EXPECT_EQ(problem(many + "\n"), "1:1: more than 1024 devices");
}

TEST(NvidiaTopo, NamesThatAreNeededAndMissingAreProblems) {
  config::Diagnostics problems;
  const NodeTopology topology = read_nvidia_topo(file_with("topo.txt", kTopo), problems);
  NodeNames some = names();
  some.nvlink.clear();
  node_yaml(topology, some, problems);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems.problems().front().at.file, "--link nvlink=CLASS");
}

/// The same node as kTopo; GPUs 0 and 1 over an NVSwitch, 2 and 3 directly.
const char* const kXml = R"(<?xml version="1.0"?>
<!-- <gpu> in a comment -->
<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:07:00.0" class="0x030200">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:d0:00.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0a:00.0" class="0x030200">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:d0:00.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020700">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64">
    <pci busid="0000:40:00.0" class="0x060400">
      <pci busid="0000:44:00.0" class="0x030200">
        <gpu dev="2" sm="80" rank="2" gdr="1">
          <nvlink target="0000:4a:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:4a:00.0" class="0x030200">
        <gpu dev="3" sm="80" rank="3" gdr="1"/>
      </pci>
      <pci busid="0000:4c:00.0" class="0x020700">
        <nic><net name="mlx5_1" dev="1" speed="200000" port="1"/></nic>
      </pci>
    </pci>
    <nic><net name="eth0" dev="2" speed="1000"/></nic>
  </cpu>
</system>
)";

TEST(NcclTopo, SaysTheSameOfTheSameNode) {
  config::Diagnostics problems;
  const NodeTopology topology = read_nccl_topo(file_with("topo.xml", kXml), problems);
  EXPECT_EQ(first(problems), "");
  const std::string text = node_yaml(topology, names(), problems);
  EXPECT_NE(text.find(kPairs), std::string::npos) << text;
}

TEST(NcclTopo, BrokenFilesAreRefusedAtTheirPlace) {
  const auto problem = [](const std::string& text) {
    config::Diagnostics problems;
    read_nccl_topo(file_with("bad.xml", text), problems);
    return first(problems);
  };
  EXPECT_EQ(problem("<system>\n  <cpu numaid=0>\n</system>\n"),
            "2:14: numaid: a value in quotes is missing");
  EXPECT_EQ(problem("<system>\n</cpu>\n"), "2:6: </cpu> closes nothing");
  EXPECT_EQ(problem("<system>\n  <cpu>\n"), "3:1: <cpu> is not closed");
  EXPECT_EQ(problem("<system>\n  <gpu rank=\"0\"/>\n</system>\n"),
            "2:3: <gpu> without a number `dev`");
  EXPECT_EQ(problem("<system/>\n"), "1:1: no <gpu> in the file");
  EXPECT_EQ(problem("\n"), "2:1: no element");
  std::string many = "<system>";
  for (int i = 0; i < 40'000; ++i) many += fmt::format("<gpu dev=\"{}\"/>", i);
  EXPECT_EQ(problem(many + "</system>\n"), "1:1: more than 1024 GPUs and NICs");
  for (int i = 0; i < 60'000; ++i) many += "<a/>";
  EXPECT_TRUE(problem(many + "</system>\n").ends_with(": more than 100000 elements"));
}

TEST(SlurmTopology, HostListsAreExpanded) {
  using Names = std::vector<std::string>;
  config::TextError error;
  EXPECT_EQ(expand_host_list("tux[0-2,12],dev", error),
            (Names{"tux0", "tux1", "tux2", "tux12", "dev"}));
  EXPECT_EQ(expand_host_list("n[08-10]-ib", error), (Names{"n08-ib", "n09-ib", "n10-ib"}));
  EXPECT_EQ(expand_host_list("r[1-2]n[1-2]", error), (Names{"r1n1", "r1n2", "r2n1", "r2n2"}));
  for (const std::string& broken :
       {std::string(), std::string("a["), std::string("a]"), std::string("a[1"),
        std::string("a[2-1]"), std::string("a[x]"), std::string("a,,b"), std::string("a[1,]b"),
        std::string(256, 'a'), std::string(255, 'a') + "[0-1]"}) {
    EXPECT_FALSE(expand_host_list(broken, error)) << broken;
    EXPECT_EQ(error.what, "'" + broken + "' is no host list");
  }
}

TEST(SlurmTopology, ProductsOfRangesAreLimited) {
  config::TextError error;
  EXPECT_EQ(expand_host_list("n[0-99999]", error).value().size(), 100'000u);
  for (const std::string text : {"n[0-100000]", "n[0-99999]m[0-99999]", "a,n[0-99999]",
                                 "[0-9][0-9][0-9][0-9][0-9][0-9]", "n[0-999999999]"}) {
    EXPECT_FALSE(expand_host_list(text, error)) << text;
    EXPECT_EQ(error.what, "'" + text + "' is more than 100000 hosts");
  }
  const auto problem = [](const std::string& text) {
    config::Diagnostics problems;
    read_slurm_topology(file_with("large.conf", text), problems);
    return first(problems);
  };
  EXPECT_EQ(problem("SwitchName=s0 Nodes=n[0-99999]m[0-99999]\n"),
            "1:15: 'n[0-99999]m[0-99999]' is more than 100000 hosts");
  EXPECT_EQ(problem("SwitchName=s0 Nodes=n[0-59999]\nSwitchName=s1 Nodes=m[0-59999]\n"),
            "2:15: the file names more than 100000 hosts");
}

const char* const kSlurm = R"(# two leaves below one spine
SwitchName=s0 Nodes=n[0-1]   # first
switchname=s1 nodes=n[2-3] LinkSpeed=100
SwitchName=top Switches=s[0-1]
)";

TEST(SlurmTopology, EverySwitchWithNodesIsALeaf) {
  config::Diagnostics problems;
  const auto nodes = read_slurm_topology(file_with("topology.conf", kSlurm), problems);
  EXPECT_EQ(first(problems), "");
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[1].name, "n1");
  EXPECT_EQ(nodes[1].leaf, 0);
  EXPECT_EQ(nodes[2].leaf, 1);
}

TEST(SlurmTopology, YamlAndBlocksSayTheSame) {
  const auto leaves = [](const std::string& name, const std::string& text) {
    config::Diagnostics problems;
    std::string out;
    for (const SlurmNode& node : read_slurm_topology(file_with(name, text), problems)) {
      out += node.name + ":" + std::to_string(node.leaf) + " ";
    }
    return out + first(problems);
  };
  const std::string expected = "n0:0 n1:0 n2:1 n3:1 ";
  EXPECT_EQ(leaves("blocks.conf",
                   "BlockName=b0 Nodes=n[0-1]\nBlockName=b1 Nodes=n[2-3]\n"
                   "BlockSizes=2,4\n"),
            expected);
  EXPECT_EQ(leaves("topology.yaml",
                   "- topology: flat\n  flat: true\n- topology: tree\n"
                   "  cluster_default: true\n  tree:\n    switches:\n"
                   "      - {switch: top, children: 's[0-1]'}\n"
                   "      - {switch: s0, nodes: 'n[0-1]'}\n"
                   "      - {switch: s1, nodes: 'n[2-3]'}\n"),
            expected);
  EXPECT_EQ(leaves("topology.yaml",
                   "- topology: a\n  block: {block_sizes: [2], blocks: [{block: "
                   "b0, nodes: 'n[0-1]'}, {block: b1, nodes: 'n[2-3]'}]}\n"),
            expected);
  EXPECT_EQ(leaves("topology.yaml", "- topology: a\n  flat: true\n"),
            "1:3: a topology without `tree: switches` or `block: blocks`");
}

TEST(SlurmTopology, BrokenFilesAreRefusedAtTheirPlace) {
  const auto problem = [](const std::string& text) {
    config::Diagnostics problems;
    read_slurm_topology(file_with("bad.conf", text), problems);
    return first(problems);
  };
  EXPECT_EQ(problem("SwitchName=s0 Nodes=a,b\nSwitchName=s1 Nodes=b\n"),
            "2:15: node 'b' hangs on two switches");
  EXPECT_EQ(problem("SwitchName=s0 Switches=s9\n"),
            "1:15: switch 's0' names 's9', which no line describes");
  EXPECT_EQ(problem("SwitchName=s0 Nodes=n[3-1]\n"), "1:15: 'n[3-1]' is no host list");
  EXPECT_EQ(problem("Switch=s0 Nodes=a\n"), "1:1: unknown key 'Switch'");
  EXPECT_EQ(problem("Nodes=a\n"), "1:1: a line without SwitchName");
  EXPECT_EQ(problem("# nothing\n"), "0:0: names no node");
}

TEST(SlurmTopology, AFileThatIsNoTopologyIsSaidOnceAndNotAThousandTimes) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += fmt::format("line {} of a letter\n", i);
  config::Diagnostics problems;
  read_slurm_topology(file_with("letter.txt", text), problems);
  ASSERT_EQ(problems.problems().size(), 11u);
  EXPECT_EQ(problems.problems().front().what, "'line' is no KEY=VALUE");
  EXPECT_EQ(problems.problems().back().what, "and 140 more: no KEY=VALUE");
  EXPECT_EQ(problems.problems().back().at.line, 3) << "where the first of them is";
}

TEST(SlurmTopology, ProblemsOfEachSortAreNamedUpToTen) {
  std::string text = "SwitchName=s Nodes=a\n";
  for (int i = 0; i < 10; ++i) text += "SwitchName=s\n";
  for (int i = 0; i < 11; ++i) text += fmt::format("SwitchName=t{} Speed=1\n", i);
  config::Diagnostics problems;
  read_slurm_topology(file_with("repeats.conf", text), problems);
  ASSERT_EQ(problems.problems().size(), 21u);
  EXPECT_EQ(problems.problems().back().what, "and 1 more: unknown keys");
}

TEST(SlurmTopology, NodesTakeTheNodeOfTheOtherFile) {
  config::Diagnostics problems;
  const models::Library library = models::load_library(models::default_library_root(), problems);
  const std::string node =
      node_yaml(read_nvidia_topo(file_with("topo.txt", kTopo), problems), names(), problems);
  const std::string text = import_slurm_topology(file_with("topology.conf", kSlurm),
                                                 file_with("node.yaml", node), library, problems);
  ASSERT_EQ(first(problems), "");
  const models::Cluster cluster =
      models::load_cluster(file_with("cluster.yaml", text), library, {}, problems);
  ASSERT_EQ(first(problems), "") << text;
  ASSERT_EQ(cluster.nodes.size(), 4u);
  EXPECT_EQ(cluster.size(), 16);
  EXPECT_EQ(cluster.nodes[3].name, "n3");
  EXPECT_EQ(cluster.nodes[3].leaf, 1);
  EXPECT_EQ(cluster.nodes[3].domains.size(), 2u);
}

TEST(SlurmTopology, ANodeOfAnUnknownTypeIsAProblemAtItsPlace) {
  config::Diagnostics problems;
  const models::Library library = models::load_library(models::default_library_root(), problems);
  const std::string node =
      "schema: orrery/cluster/1\nname: a\nnodes:\n  - {name: a, gpus: {type: A100-80000GB}}\n";
  EXPECT_EQ(import_slurm_topology(file_with("topology.conf", kSlurm), file_with("node.yaml", node),
                                  library, problems),
            "");
  EXPECT_EQ(first(problems), "4:28: unknown GPU type 'A100-80000GB'");
}

}  // namespace
}  // namespace orrery::calibration::importers_test
