#include "tests/sim/iteration/support.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/cost/pricer.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "tests/sim/in_child.h"

namespace orrery::sim {

models::Job make_job() {
  models::Job job;
  job.global_batch = 1;
  job.sequence_length = 1024;
  return job;
}

ir::Program collective_program(ir::CollectiveKind kind, int members, Bytes bytes) {
  ir::Program program;
  program.pipelines = {{0, 1, 1}};
  program.groups.emplace_back();
  ir::CollectiveShape shape;
  shape.kind = kind;
  shape.parts = {{0, bytes, {}}};
  program.collective_shapes = {shape};
  program.collectives = {{0, {0, static_cast<std::uint32_t>(members)}}};
  program.stream_begin = {0};
  for (int i = 0; i < members; ++i) {
    program.groups.front().devices.push_back({i});
    ir::Rank rank;
    rank.device = {i};
    rank.devices = {{i}};
    rank.group = i;
    program.ranks.push_back(rank);
    ir::Op op;
    op.kind = ir::OpKind::collective;
    op.stream = ir::Stream::collective;
    op.purpose = ir::Purpose::data_parallel;
    op.rank = {i};
    op.match = 0;
    op.bytes = bytes;
    program.ops.push_back(op);
    program.members.push_back({i});
    const auto before = static_cast<std::uint32_t>(i);
    program.stream_begin.insert(program.stream_begin.end(), {before, before, before + 1});
  }
  program.dependency_begin.assign(program.ops.size() + 1, 0);
  return program;
}

ir::Program message_program(const std::vector<ir::Transfer>& messages) {
  ir::Program program;
  program.pipelines = {{0, 1, 1}};
  program.stream_begin = {0};
  const auto count = static_cast<std::int32_t>(messages.size());
  for (std::int32_t i = 0; i < 2 * count; ++i) {  // all senders, then all receivers
    const bool sends = i < count;
    const ir::Transfer& message = messages[i % count];
    ir::Rank rank;
    rank.device = sends ? message.source : message.destination;
    rank.devices = {rank.device};
    rank.group = i;
    program.ranks.push_back(rank);
    ir::Op op;
    op.kind = sends ? ir::OpKind::send : ir::OpKind::recv;
    op.stream = ir::Stream::p2p;
    op.rank = {i};
    op.match = sends ? i + count : i - count;
    op.transfers = i % count;
    op.bytes = message.bytes;
    program.ops.push_back(op);
    if (sends) program.transfer_sets.push_back({message});
    const auto before = static_cast<std::uint32_t>(i);
    program.stream_begin.insert(program.stream_begin.end(), {before, before + 1, before + 1});
  }
  program.dependency_begin.assign(program.ops.size() + 1, 0);
  return program;
}

namespace {

std::string encode(const IterationResult& result) {
  nlohmann::json out;
  out["time"] = result.iteration_time.value;
  out["duration"] = result.log.iterations.front().end.nanoseconds;
  for (const ir::IterationMark& mark : result.log.iterations) {
    out["marks"].push_back({mark.start.nanoseconds, mark.end.nanoseconds});
  }
  out["iterations"] = result.iterations;
  out["settled"] = result.settled;
  for (const Seconds time : result.pipeline_times) out["pipelines"].push_back(time.value);
  for (const Bytes peak : result.peak_memory) out["peaks"].push_back(peak.value);
  for (const ir::RankBreakdown& rank : result.ranks) {
    out["ranks"].push_back({rank.compute.count, rank.tensor_parallel.count, rank.zero.count,
                            rank.pipeline.count, rank.data_parallel.count, rank.optimizer.count,
                            rank.bubble.count});
  }
  out["work"] = {result.work.timers, result.work.flows, result.work.barriers};
  for (const ir::LinkUse& use : result.log.links) {
    out["links"].push_back({use.link, use.bytes.value});
  }
  for (const ir::MemorySample& sample : result.log.memory) {
    for (const double value :
         {static_cast<double>(sample.rank.value), static_cast<double>(sample.at.nanoseconds),
          sample.allocated.value}) {
      out["memory"].push_back(value);
    }
  }
  std::string spans;
  for (const ir::Span& span : result.log.spans) {
    spans +=
        fmt::format("{} {} {} {} {} {}\n", span.rank.value, span.op.value, span.start.nanoseconds,
                    span.end.nanoseconds, span.inner.count, span.bytes.value);
  }
  out["spans"] = spans;
  return out.dump();
}

Outcome decode(const std::string& text) {
  const nlohmann::json in = nlohmann::json::parse(text);
  Outcome out;
  out.iteration_time = in["time"];
  out.duration = in["duration"];
  out.marks = in["marks"].get<std::vector<std::pair<std::int64_t, std::int64_t>>>();
  out.iterations = in["iterations"];
  out.settled = in["settled"];
  if (in.contains("pipelines")) out.pipeline_times = in["pipelines"].get<std::vector<double>>();
  out.peak_memory = in["peaks"].get<std::vector<double>>();
  for (const auto& rank : in["ranks"]) {
    out.ranks.push_back(
        {{rank[0]}, {rank[1]}, {rank[2]}, {rank[3]}, {rank[4]}, {rank[5]}, {rank[6]}});
  }
  out.work = {in["work"][0], in["work"][1], in["work"][2]};
  if (in.contains("links")) {
    out.links = in["links"].get<std::vector<std::pair<std::string, double>>>();
  }
  if (in.contains("memory")) out.memory_samples = in["memory"].get<std::vector<double>>();
  out.spans = in["spans"];
  return out;
}

}  // namespace

Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const ir::Program& program, const IterationOptions& options,
                 const ir::Profile& profile) {
  return simulate(cluster, workload, make_job(), program, options, profile);
}

Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const models::Job& job, const ir::Program& program,
                 const IterationOptions& options, const ir::Profile& profile) {
  const std::string result = in_child([&] {
    const models::Topology topology(cluster, profile);
    IterationSimulator simulator(cluster, topology);
    return encode(simulator.run(program, models::Pricer(cluster, workload, job, profile), options));
  });
  return result.empty() ? Outcome{} : decode(result);
}

Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const ir::Plan& plan, bool collapsed, const IterationOptions& options) {
  const ir::Program program =
      models::lower(plan, cluster, workload, make_job(), {.collapsed = collapsed});
  return simulate(cluster, workload, program, options);
}

double relative_difference(double a, double b) {
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

}  // namespace orrery::sim
