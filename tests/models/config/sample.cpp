#include "tests/models/config/sample.h"

namespace sample {

using orrery::config::Visitor;

std::vector<std::pair<Schedule, const char*>> enum_names(Schedule) {
  return {{Schedule::gpipe, "gpipe"},
          {Schedule::one_f_one_b, "1f1b"},
          {Schedule::interleaved, "interleaved"}};
}

void describe(Visitor& v, Link& link) {
  v.title("Link");
  v.doc("One class of links.");
  v.optional("latency", link.latency, "one way");
  v.required("bandwidth", link.bandwidth, "per direction");
  v.positive("bandwidth", link.bandwidth);
}

void describe(Visitor& v, Gpu& gpu) {
  v.required("name", gpu.name, "GPU type");
  v.optional("count", gpu.count, "how many");
  v.between("count", gpu.count, 1, 16);
}

bool from_scalar(const std::string& text, Gpu& out, std::string& error) {
  const std::size_t star = text.find('*');
  orrery::config::TextError why;
  out.name = text.substr(0, star);
  if (out.name.empty()) error = "expected 'name' or 'name*count'";
  if (star == std::string::npos || !error.empty()) return error.empty();
  const auto count = orrery::config::parse_integer(text.substr(star + 1), 1, 16, why);
  if (!count) error = why.what;
  out.count = static_cast<int>(count.value_or(1));
  return count.has_value();
}

void describe(Visitor& v, Node& node) {
  v.required("name", node.name, "unique name");
  v.required("gpus", node.gpus, "its GPUs");
  v.optional("nic", node.nic, "its network card");
  if (v.reading() && node.gpus.empty()) v.problem("gpus", "a node needs a GPU", "add one");
}

void describe(Visitor& v, Tree& tree) {
  v.optional("weight", tree.weight, "a | b");
  v.optional("children", tree.children, "below");
}

void describe(Visitor& v, Cluster& cluster) {
  v.doc("A cluster for tests.");
  v.schema("orrery/sample", 2);
  v.optional("title", cluster.title, "for figures");
  v.required("nodes", cluster.nodes, "all nodes");
  v.optional("links", cluster.links, "link classes by name");
  v.optional("schedule", cluster.schedule, "pipeline schedule");
  v.optional("tokens", cluster.tokens, "tokens per batch");
  v.optional("efficiency", cluster.efficiency, "share of peak");
  v.optional("recompute", cluster.recompute, "recompute activations");
  v.optional("jitter", cluster.jitter, "relative deviation");
  v.optional("devices", cluster.devices, "in use");
  v.optional("memory", cluster.memory, "per GPU");
  v.optional("peak", cluster.peak, "per GPU");
  v.optional("work", cluster.work, "per token");
  v.optional("budget", cluster.budget, "in all");
  v.optional("price", cluster.price, "per GPU");
  v.optional("overrides", cluster.overrides, "free form");
  v.optional("tree", cluster.tree, "recursive");
  if (v.good() && cluster.devices.size() > 4) v.problem("", "too many devices", "at most 4");
}

const char* const kCluster = R"(# a comment
schema: orrery/sample/2
title: "two nodes: #1"
nodes:
  - name: n0
    gpus: [A100*2, {name: V100, count: 4}]
    nic: &nic {latency: 2 us, bandwidth: 400 Gbps}
  - name: n1
    gpus:
      - name: H100
    nic: *nic
links:
  nvlink: {bandwidth: 300 GB/s}
  "odd: name": {bandwidth: 1 GiB/s, latency: 0.25 ms}
schedule: 1f1b
tokens: 1e9
efficiency: 0.45
recompute: true
jitter: null
devices: [0, 3]
memory: 24 GB
peak: 165.2 TFLOPS
work: 3 PFLOP
budget: $20
price: $2.5/h
overrides: {job.batch: [1, 2, {a: "3", b: }], x: ~}
tree:
  weight: 1
  children: [{weight: 2}, {children: [{weight: 3}]}]
)";

}  // namespace sample
