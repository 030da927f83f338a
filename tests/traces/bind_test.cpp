#include "traces/bind.h"

#include <gtest/gtest.h>

#include <string>

#include "models/spec/library.h"
#include "tests/traces/support.h"
#include "tests/worlds/clusters.h"

namespace orrery::traces::bind_test {
namespace {

/// Nodes a (2 x A100), h (1 x H800), b (2 x A100).
models::Cluster cluster() {
  std::vector<models::GpuType> types(2);
  types[0].name = "A100-80GB";
  types[1].name = "H800-80GB";
  models::Cluster out = worlds::bare_cluster({{0, 0}, {1}, {0, 0}}, types);
  out.name = "small";
  out.nodes[0].name = "a";
  out.nodes[1].name = "h";
  out.nodes[2].name = "b";
  return out;
}

std::string header(const std::string& nodes) {
  return "# schema: orrery/trace/1\n# horizon: 60\n" + nodes + "time,kind,scope\n";
}
Trace bound(const std::string& text) {
  config::Diagnostics diagnostics;
  Trace trace = bind(read_text(text), cluster(), {"trace", 0, 0}, diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  return trace;
}
std::string problems_of(const std::string& text) {
  config::Diagnostics diagnostics;
  bind(read_text(text), cluster(), {"trace", 0, 0}, diagnostics);
  return all(diagnostics);
}

TEST(Bind, ByNameWhenAllNamesMatch) {
  const Trace trace =
      bound(header("# nodes: b x2\n# nodes: a x2\n") + "1,fail,devices:a/1\n2,leave,node:b\n");
  EXPECT_EQ(trace.nodes, nodes_of(cluster()));
  EXPECT_EQ(trace.events[0].scope.devices, std::vector<DeviceId>{{1}});
  EXPECT_EQ(trace.events[1].scope.node, NodeId{2});
}

TEST(Bind, ByOrderWithinTheGpuType) {
  const Trace trace = bound(header("# nodes: x H800-80GB\n# nodes: y{0..1} A100-80GB\n") +
                            "1,leave,node:x\n2,leave,node:y0\n3,leave,node:y1\n");
  EXPECT_EQ(trace.events[0].scope.node, NodeId{1});
  EXPECT_EQ(trace.events[1].scope.node, NodeId{0});
  EXPECT_EQ(trace.events[2].scope.node, NodeId{2});
}

TEST(Bind, ByOrderWithoutTypesAndTheRestNeverChanges) {
  const Trace trace = bound(header("# nodes: x{0..1}\n") + "1,join,node:x1\n");
  EXPECT_EQ(trace.nodes.size(), 3u);
  EXPECT_EQ(absent_at_start(trace), std::vector<NodeId>{{1}});
}

TEST(Bind, TheDeviceOfAOneGpuNodeStandsForTheWholeNode) {
  const Trace trace = bound(header("# nodes: x{0..1}\n") + "1,fail,devices:x0/0;x1/0\n");
  EXPECT_EQ(trace.events[0].scope.devices, (std::vector<DeviceId>{{0}, {1}, {2}}));
}

TEST(Bind, SaysWhatDoesNotFit) {
  EXPECT_EQ(problems_of(header("# nodes: x{0..3}\n")),
            "the trace has 4 nodes, cluster 'small' has 3\n");
  EXPECT_EQ(problems_of(header("# nodes: x{0..1} H800-80GB\n# nodes: z T4-16GB\n")),
            "the trace has 2 nodes of H800-80GB, cluster 'small' has 1\n"
            "the trace has 1 nodes of T4-16GB, cluster 'small' has 0 (GPU types: A100-80GB, "
            "H800-80GB)\n");
  EXPECT_EQ(
      problems_of(header("# nodes: x A100-80GB x8\n") + "1,fail,devices:x/0-3\n"),
      "node 'x' of the trace has 8 GPUs, node 'a' of cluster 'small', which it would be, has 2 "
      "(a trace of this cluster, or one whose nodes have its names)\n");
}

TEST(Bind, TellsWhichNodeBecameWhich) {
  const auto mapping = [](const std::string& text) {
    config::Diagnostics diagnostics;
    std::string told = "?";
    bind(read_text(text), cluster(), {"trace", 0, 0}, diagnostics, &told);
    return told;
  };
  EXPECT_EQ(mapping(header("# nodes: b x2\n# nodes: a x2\n")), "");
  EXPECT_EQ(
      mapping(header("# nodes: x H800-80GB\n# nodes: y{0..1} A100-80GB\n")),
      "nodes of the trace by GPU type: x is h, y0 is a, y1 is b; 2 of one GPU stand for whole "
      "nodes");
}

}  // namespace
}  // namespace orrery::traces::bind_test
