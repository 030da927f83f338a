#include "experiments/study/export_chakra.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "calibration/importers/chakra_file.h"
#include "experiments/study/export_plan.h"
#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/cost/pricer.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"

namespace orrery::experiments {
namespace {

using calibration::ChakraCollective;
using calibration::ChakraNode;
using calibration::ChakraTrace;
using calibration::ChakraType;

constexpr const char* kGroupsFile = "comm_groups.json";
/// ASTRA-sim cuts collectives into so many chunks; its gathers of fewer bytes never end.
constexpr int kSplits = 4;

ChakraCollective chakra_collective(ir::CollectiveKind kind) {
  switch (kind) {
    case ir::CollectiveKind::all_reduce:
      return ChakraCollective::all_reduce;
    case ir::CollectiveKind::reduce_scatter:
      return ChakraCollective::reduce_scatter;
    case ir::CollectiveKind::all_gather:
      return ChakraCollective::all_gather;
    case ir::CollectiveKind::broadcast:
      return ChakraCollective::broadcast;
    case ir::CollectiveKind::all_to_all:
      break;
  }
  return ChakraCollective::all_to_all;
}

class TraceWriter {
 public:
  /// `broadcasts`: whether the traces' reader has them.
  TraceWriter(const LoadedRun& run, bool broadcasts)
      : broadcasts_(broadcasts),
        program_(models::lower(*run.plan, run.cluster, run.workload, run.spec.job,
                               {.collapsed = false, .seed = run.spec.seed})),
        prices_(program_, models::Pricer(run.cluster, run.workload, run.spec.job, run.profile)) {
    std::vector<std::pair<DeviceId, std::size_t>> order;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      order.emplace_back(program_.ranks[r].device, r);
    }
    std::sort(order.begin(), order.end());
    number_.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      number_[order[i].second] = static_cast<std::int64_t>(i);
      number_of_device_[order[i].first] = static_cast<std::int64_t>(i);
    }
    traces_.resize(order.size());
  }

  std::vector<ExportedFile> files() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) write_rank(r);
    check_meetings();
    if (!reasons_.empty()) throw NotExpressible(fmt::format("{}", fmt::join(reasons_, "\n")));
    std::vector<ExportedFile> files;
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      files.push_back({fmt::format("chakra.{}.et", i), calibration::write_chakra(traces_[i])});
    }
    nlohmann::ordered_json groups = nlohmann::ordered_json::object();
    for (std::size_t g = 0; g < groups_.size(); ++g) groups[std::to_string(g)] = groups_[g];
    files.push_back({kGroupsFile, groups.dump() + "\n"});
    return files;
  }

  /// GPUs in the order of their ranks.
  std::vector<DeviceId> devices() const {
    std::vector<DeviceId> out;
    for (const auto& [device, number] : number_of_device_) out.push_back(device);
    return out;
  }

 private:
  /// Each reason once.
  void refuse(std::string reason) {
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) {
      reasons_.push_back(std::move(reason));
    }
  }

  /// A piece of a pass, or one of its inner collectives.
  struct Step {
    const ir::InnerCollective* inner = nullptr;  ///< None: a piece of the computation.
    std::int32_t group = -1;
  };

  /// What the op does one after the other, as the simulator's per_block mode.
  std::vector<Step> steps_of(const ir::Op& op, DeviceId device) const {
    const auto set = program_.inner_of(op);
    std::int32_t pieces = 1;
    for (const ir::InnerCollective& inner : set) pieces = std::max(pieces, inner.count);
    std::vector<Step> steps;
    for (std::int32_t i = 0; i < pieces; ++i) {
      steps.push_back({});
      for (const ir::InnerCollective& inner : set) {
        const std::int64_t before = std::int64_t{i} * inner.count / pieces;
        const std::int64_t until = (std::int64_t{i} + 1) * inner.count / pieces;
        for (std::int64_t j = before; j < until; ++j) {
          for (const std::int32_t group : inner.groups) {
            const auto& devices = program_.group(group).devices;
            if (devices.size() < 2) continue;
            if (std::find(devices.begin(), devices.end(), device) == devices.end()) continue;
            steps.push_back({&inner, group});
          }
        }
      }
    }
    return steps;
  }

  void write_rank(std::size_t r) {
    const ir::Rank& rank = program_.ranks[r];
    trace_ = &traces_[static_cast<std::size_t>(number_[r])];
    self_ = number_[r];
    trace_->numbers["device"] = rank.device.value;
    const std::size_t begin = program_.stream_begin[r * ir::kStreams];
    const std::size_t end = program_.stream_begin[(r + 1) * ir::kStreams];
    std::vector<std::vector<Step>> steps;
    last_.assign(end - begin, 0);
    std::uint64_t next = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const ir::Op& op = program_.ops[i];
      steps.push_back(ir::is_compute(op.kind) ? steps_of(op, rank.device) : std::vector<Step>(1));
      next += steps.back().size();
      last_[i - begin] = next - 1;
    }
    for (std::size_t i = begin; i < end; ++i) {
      ChakraNode first = start_of(i, begin);
      first.id = last_[i - begin] + 1 - steps[i - begin].size();
      write_op(i, std::move(first), steps[i - begin]);
    }
  }

  /// What the op waits for.
  ChakraNode start_of(std::size_t i, std::size_t begin) const {
    ChakraNode node;
    const ir::Op& op = program_.ops[i];
    const std::size_t slot = op.rank.index() * ir::kStreams + index_of(op.stream);
    if (op.stream != ir::Stream::p2p && i > program_.stream_begin[slot]) {
      node.control.push_back(last_[i - 1 - begin]);
    }
    for (const OpId before : program_.dependencies_of({static_cast<std::int32_t>(i)})) {
      node.data.push_back(last_[before.index() - begin]);
    }
    return node;
  }

  void write_op(std::size_t i, ChakraNode node, const std::vector<Step>& steps) {
    const ir::Op& op = program_.ops[i];
    const OpId id{static_cast<std::int32_t>(i)};
    switch (ir::traits(op.kind).timing) {
      case ir::OpTiming::compute:
        return write_compute(op, id, std::move(node), steps);
      case ir::OpTiming::transfer:
        return write_message(i, std::move(node));
      case ir::OpTiming::collective: {
        const ir::CollectiveShape& shape = program_.shape_of(program_.collective_of(op));
        const ir::CollectiveShape::Part& part = shape.parts.front();
        return write_collective(std::move(node), shape.kind, shape.purpose, false, part.group,
                                part.bytes, {},
                                program_.members_of(program_.collective_of(op).members).size());
      }
      case ir::OpTiming::storage:
        refuse("reading and writing checkpoints");
    }
  }

  static std::string name_of_pass(const ir::Program& program, const ir::Op& op) {
    std::string name = ir::traits(op.kind).label;
    if (op.micro_batch.valid()) name += fmt::format(" mb{}", op.micro_batch.value);
    if (op.segment != ir::kNone) {
      const ir::SegmentInfo& segment = program.segment_of(op);
      name += fmt::format(" blocks {}-{}", segment.first_block.value, segment.last_block.value);
    }
    return name;
  }

  void write_compute(const ir::Op& op, OpId id, ChakraNode node, const std::vector<Step>& steps) {
    const auto pieces = std::count_if(steps.begin(), steps.end(),
                                      [](const Step& step) { return step.inner == nullptr; });
    const std::int64_t whole = to_nanoseconds(prices_.compute(id)).count;
    const std::string name = name_of_pass(program_, op);
    std::int64_t piece = 0;
    for (const Step& step : steps) {
      ChakraNode one = std::move(node);
      node = {};
      node.id = one.id + 1;
      node.control = {one.id};
      if (step.inner == nullptr) {
        one.name = name;
        one.type = static_cast<std::uint32_t>(ChakraType::compute);
        const std::int64_t time = whole * (piece + 1) / pieces - whole * piece / pieces;
        ++piece;
        one.duration_us = static_cast<std::uint64_t>((time + 500) / 1000);
        one.numbers = {{"is_cpu_op", 0}, {"duration_ns", time}};
        trace_->nodes.push_back(std::move(one));
      } else {
        write_collective(std::move(one), step.inner->kind, step.inner->purpose, true, step.group,
                         step.inner->bytes, step.inner->bytes_per_peer, 0);
      }
    }
  }

  void write_message(std::size_t i, ChakraNode node) {
    const ir::Op& op = program_.ops[i];
    const bool sends = op.kind == ir::OpKind::send;
    const std::int64_t other = number_[program_.op({op.match}).rank.index()];
    double bytes = 0;
    for (const ir::Transfer& transfer : program_.transfers_of(op)) bytes += transfer.bytes.value;
    node.name = ir::traits(op.kind).label;
    node.type = static_cast<std::uint32_t>(sends ? ChakraType::send : ChakraType::receive);
    node.numbers = {{"is_cpu_op", 0},
                    {"comm_src", sends ? self_ : other},
                    {"comm_dst", sends ? other : self_},
                    {"comm_tag", sends ? static_cast<std::int64_t>(i) : op.match},
                    {"comm_size", std::llround(bytes)}};
    trace_->nodes.push_back(std::move(node));
  }

  /// `members`: ops that meet in the program; 0: those of the group, each in a pass of its own.
  void write_collective(ChakraNode node, ir::CollectiveKind kind, ir::Purpose purpose, bool inner,
                        std::int32_t group, Bytes bytes, const std::vector<double>& per_peer,
                        std::size_t members) {
    const std::vector<DeviceId>& devices = program_.group(group).devices;
    const auto count = static_cast<double>(devices.size());
    const std::string name = fmt::format("{} ({})", ir::name_of(kind), ir::name_of(purpose));
    double size = bytes.value;
    if (kind == ir::CollectiveKind::all_gather) size /= count;
    if (kind == ir::CollectiveKind::broadcast && !broadcasts_) {
      // As many bytes over each link of the ring.
      kind = ir::CollectiveKind::all_gather;
      size = std::max(std::ceil(size / (count - 1)), double{kSplits});
    }
    if (kind == ir::CollectiveKind::all_to_all)
      size = even_exchange(per_peer, bytes, devices.size());
    std::vector<std::int64_t> ranks;
    for (const DeviceId device : devices) ranks.push_back(number_of_device_.at(device));
    ORRERY_CHECK(members == 0 || members == devices.size(), "{} members of a group of {}", members,
                 devices.size());
    const auto [place, fresh] = group_number_.try_emplace({inner, purpose, ranks}, groups_.size());
    if (fresh) groups_.push_back(ranks);
    auto& met = met_[{place->second, static_cast<std::size_t>(self_)}];
    met.emplace_back(kind, size);
    node.name = name;
    node.type = static_cast<std::uint32_t>(ChakraType::collective);
    node.numbers = {{"is_cpu_op", 0},
                    {"comm_type", static_cast<std::int64_t>(chakra_collective(kind))},
                    {"comm_size", std::llround(size)}};
    node.texts = {{"pg_name", std::to_string(place->second)}};
    trace_->nodes.push_back(std::move(node));
  }

  /// What each member puts into an all-to-all, its own part included.
  double even_exchange(const std::vector<double>& per_peer, Bytes bytes, std::size_t count) {
    if (per_peer.empty()) return bytes.value / static_cast<double>(count);
    const double one = per_peer.size() > 1 ? per_peer[1] : 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (i != j && std::abs(per_peer[i * count + j] - one) > 0.5) {
          refuse("all-to-all collectives whose members exchange different amounts");
        }
      }
    }
    return one * static_cast<double>(count);
  }

  /// Members of a group must do the same in the same order: ranks of a trace meet in collectives,
  /// while passes of the program gather parameters each at their own time.
  void check_meetings() {
    for (const auto& [key, own] : met_) {
      const auto& [group, rank] = key;
      for (const std::int64_t other : groups_[group]) {
        const auto found = met_.find({group, static_cast<std::size_t>(other)});
        if (found != met_.end() && found->second == own) continue;
        return refuse(
            "collectives inside passes of ranks that run different passes (ZeRO-3 or experts "
            "shared among uneven pipelines)");
      }
    }
  }

  const bool broadcasts_;
  const ir::Program program_;
  const models::ProgramPrices prices_;
  std::vector<std::int64_t> number_;  ///< By rank of the program.
  std::map<DeviceId, std::int64_t> number_of_device_;
  std::vector<ChakraTrace> traces_;  ///< By number.
  ChakraTrace* trace_ = nullptr;     ///< Of the rank that is being written.
  std::int64_t self_ = 0;
  std::vector<std::uint64_t> last_;  ///< By op of the rank: its last node.
  std::map<std::tuple<bool, ir::Purpose, std::vector<std::int64_t>>, std::size_t> group_number_;
  std::vector<std::vector<std::int64_t>> groups_;
  /// By group and rank, in order.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::pair<ir::CollectiveKind, double>>>
      met_;
  std::vector<std::string> reasons_;
};

/// A dimension of ASTRA-sim's network: every member behind one switch.
struct Dimension {
  std::size_t members = 1;
  double bandwidth = 0;  ///< Of each member, bytes per second.
  Seconds latency;
};

bool alike(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(a, b); }

/// GPUs of a node, then nodes; or why the devices have no such form.
std::vector<Dimension> dimensions_of(const std::vector<DeviceId>& devices, const LoadedRun& run) {
  const models::Cluster& cluster = run.cluster;
  const models::Topology topology(cluster, run.profile);
  std::map<NodeId, std::vector<DeviceId>> nodes;
  for (const DeviceId device : devices) nodes[cluster.device(device).node].push_back(device);
  const auto& [first_node, first] = *nodes.begin();
  std::vector<std::string> reasons;
  Dimension inside{first.size(), 0, {}};
  Dimension between{nodes.size(), 0, {}};
  const auto compare = [&](Dimension& dimension, const models::Path& path, double share,
                           const std::string& what) {
    const double bandwidth = path.bandwidth.value / share;
    if (dimension.bandwidth == 0) {
      dimension.bandwidth = bandwidth;
      dimension.latency = path.latency;
    } else if (!alike(dimension.bandwidth, bandwidth) ||
               !alike(dimension.latency.value, path.latency.value)) {
      reasons.push_back(
          fmt::format("{}: {:.4g} GB/s and {:.3g} us, elsewhere {:.4g} GB/s and "
                      "{:.3g} us; its network is the same everywhere",
                      what, bandwidth / 1e9, path.latency.value * 1e6, dimension.bandwidth / 1e9,
                      dimension.latency.value * 1e6));
    }
  };
  for (const auto& [node, own] : nodes) {
    const std::string& name = cluster.node(node).name;
    if (own.size() != first.size()) {
      reasons.push_back(fmt::format("{} GPUs of {}, {} of {}: every node has as many", own.size(),
                                    name, first.size(), cluster.node(first_node).name));
      continue;
    }
    if (own.size() > 1) {
      compare(inside, topology.path(own[0], own[1]), 1, "inside " + name);
    }
    for (const auto& [other, theirs] : nodes) {
      if (other == node || theirs.empty()) continue;
      const models::Path path = topology.path(own[0], theirs[0]);
      const auto sharing =
          std::count_if(own.begin(), own.end(), [&, to = theirs[0]](DeviceId device) {
            return topology.path(device, to).source_nic == path.source_nic;
          });
      compare(between, path, static_cast<double>(sharing),
              fmt::format("from {} to {}", name, cluster.node(other).name));
      if (!reasons.empty()) break;
    }
    if (!reasons.empty()) break;
  }
  if (!reasons.empty()) throw NotExpressible(fmt::format("{}", fmt::join(reasons, "\n")));
  std::vector<Dimension> dimensions;
  if (inside.members > 1) dimensions.push_back(inside);
  if (between.members > 1) dimensions.push_back(between);
  return dimensions;
}

std::string network_yml(const std::vector<Dimension>& dimensions) {
  // Its GB are 2^30 bytes.
  constexpr double kGibi = 1024.0 * 1024 * 1024;
  std::vector<std::string> switches;
  std::vector<std::size_t> counts;
  std::vector<std::string> bandwidths;
  std::vector<std::string> latencies;
  for (const Dimension& dimension : dimensions) {
    switches.emplace_back("Switch");
    counts.push_back(dimension.members);
    bandwidths.push_back(fmt::format("{:.6f}", dimension.bandwidth / kGibi));
    latencies.push_back(fmt::format("{:.3f}", dimension.latency.value * 1e9));
  }
  return fmt::format(
      "# Written by orrery export. bandwidth: 2^30 bytes/s of each NPU; latency: ns.\n"
      "topology: [ {} ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]\nlatency: [ {} ]\n",
      fmt::join(switches, ", "), fmt::join(counts, ", "), fmt::join(bandwidths, ", "),
      fmt::join(latencies, ", "));
}

std::string system_json(std::size_t dimensions, const models::GpuType& gpu) {
  const std::vector<std::string> rings(dimensions, "ring");
  nlohmann::ordered_json json;
  json["scheduling-policy"] = "FIFO";
  json["endpoint-delay"] = 1;
  json["active-chunks-per-dimension"] = 1;
  json["preferred-dataset-splits"] = kSplits;
  json["all-reduce-implementation"] = rings;
  json["all-gather-implementation"] = rings;
  json["reduce-scatter-implementation"] = rings;
  json["all-to-all-implementation"] = std::vector<std::string>(dimensions, "direct");
  json["collective-optimization"] = "localBWAware";
  json["local-mem-bw"] = std::llround(gpu.memory_bandwidth.value / 1e9);
  json["boost-mode"] = 0;
  json["roofline-enabled"] = 0;  // nodes carry their times
  return json.dump(2) + "\n";
}

std::string run_script(std::size_t dimensions) {
  return fmt::format(
      "#!/usr/bin/env bash\n"
      "# Written by orrery export. ASTRA_SIM: the folder with ASTRA-sim's analytical binaries\n"
      "# (build/astra_analytical/build/bin).{}\n"
      "set -euo pipefail\n"
      "cd \"$(dirname \"$0\")\"\n"
      "exec \"${{ASTRA_SIM:?}}/AstraSim_Analytical_Congestion_{}\" \\\n"
      "  --workload-configuration=chakra --comm-group-configuration={} \\\n"
      "  --system-configuration=system.json --network-configuration=network.yml \\\n"
      "  --remote-memory-configuration=remote_memory.json \"$@\"\n",
      dimensions > 1 ? " The one that knows congestion takes a single dimension." : "",
      dimensions > 1 ? "Unaware" : "Aware", kGroupsFile);
}

}  // namespace

std::vector<ExportedFile> chakra_files(const LoadedRun& run) {
  return TraceWriter(run, true).files();
}

std::vector<ExportedFile> astra_sim_files(const LoadedRun& run) {
  TraceWriter writer(run, false);
  std::vector<ExportedFile> files = writer.files();
  const std::vector<DeviceId> devices = writer.devices();
  const std::vector<Dimension> dimensions = dimensions_of(devices, run);
  if (dimensions.empty()) throw NotExpressible("a single GPU: there is no network");
  files.push_back({"network.yml", network_yml(dimensions)});
  files.push_back(
      {"system.json", system_json(dimensions.size(), run.cluster.gpu(devices.front()))});
  files.push_back({"remote_memory.json", "{\n  \"memory-type\": \"NO_MEMORY_EXPANSION\"\n}\n"});
  files.push_back({"run.sh", run_script(dimensions.size()), true});
  return files;
}

}  // namespace orrery::experiments
