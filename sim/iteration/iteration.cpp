#include "sim/iteration/iteration.h"

#include <algorithm>
#include <map>
#include <set>

#include "models/base/check.h"
#include "sim/iteration/memory_timeline.h"
#include "sim/iteration/program_tasks.h"

namespace orrery::sim {
namespace {

/// Slowdown of each link that has one.
using LinkFactors = std::map<LinkId, double>;

LinkFactors link_factors(const models::Topology& topology, const IterationOptions& options) {
  LinkFactors factors;
  for (const SlowLink& slow : options.slow_links) {
    for (std::size_t i = 0; i < topology.links().size(); ++i) {
      if (topology.links()[i].name != slow.link) continue;
      factors.try_emplace({static_cast<std::int32_t>(i)}, 1.0).first->second *= slow.slowdown;
    }
  }
  return factors;
}

models::PathFunction path_function(const models::Topology& topology, const LinkFactors& factors) {
  if (factors.empty()) {
    return [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  }
  return [&](DeviceId a, DeviceId b) {
    models::Path path = topology.path(a, b);
    std::vector<LinkId> links;
    topology.route(a, b, links);
    for (const LinkId link : links) {
      const auto slow = factors.find(link);
      if (slow == factors.end()) continue;
      path.bandwidth =
          std::min(path.bandwidth, topology.links()[link.index()].bandwidth / slow->second);
    }
    return path;
  };
}

/// Ops from which memory counts; a small program that runs again is faster with its memory kept.
constexpr std::size_t kLargeProgram = 100'000;

bool is_backward(ir::OpKind kind) {
  return kind == ir::OpKind::backward || kind == ir::OpKind::backward_input ||
         kind == ir::OpKind::backward_weight;
}

}  // namespace

class IterationSimulator::Impl {
 public:
  Impl(const models::Cluster& cluster, const models::Topology& topology, bool count_links,
       const PlatformExtension& extension)
      : cluster(cluster),
        topology(topology),
        count_links(count_links),
        engine(make_platform(topology, cluster.size(), extension),
               {.count_link_bytes = count_links}) {}

  IterationResult run(const ir::Program& program, const models::ProgramPrices& prices,
                      const IterationOptions& options);
  void collect(const ir::Program& program, ProgramTasks& tasks, const IterationOptions& options,
               Seconds start, IterationResult& result) const;
  void collect_links(const std::vector<Bytes>& before, ProgramTasks& tasks,
                     const LinkFactors& factors, IterationResult& result) const;
  void scale_links(const LinkFactors& factors, bool slow);

  const models::Cluster& cluster;
  const models::Topology& topology;
  bool count_links;
  FlowEngine engine;
};

void IterationSimulator::Impl::scale_links(const LinkFactors& factors, bool slow) {
  for (const auto& [link, factor] : factors) {
    const BytesPerSecond bandwidth = topology.links()[link.index()].bandwidth;
    engine.set_link_bandwidth(link, slow ? bandwidth / factor : bandwidth);
  }
}

IterationResult IterationSimulator::Impl::run(const ir::Program& program,
                                              const models::ProgramPrices& prices,
                                              const IterationOptions& options) {
  const std::vector<std::string> problems = find_problems(options, cluster, topology);
  ORRERY_CHECK(problems.empty(), "iteration options: {}", problems.front());
  const bool links = options.record_links && count_links;
  const LinkFactors factors = link_factors(topology, options);
  const models::PathFunction path = path_function(topology, factors);
  const std::vector<Bytes> carried = links ? engine.link_bytes() : std::vector<Bytes>{};
  scale_links(factors, true);

  const FlowEngine::Mark mark = engine.mark();
  const Seconds start = engine.now();
  ProgramTasks tasks({program, prices, cluster, path, options, topology.calibrated()}, engine);
  tasks.build();
  engine.run();
  const std::vector<TaskId> unfinished = engine.unfinished();
  ORRERY_CHECK(unfinished.empty(), "the program stands still: {} of its tasks never start",
               unfinished.size());

  if (program.ops.size() >= kLargeProgram) engine.shrink(mark);  // the log takes as much

  IterationResult result;
  result.work = tasks.work();
  collect(program, tasks, options, start, result);
  if (links) collect_links(carried, tasks, factors, result);
  engine.rewind(mark);
  scale_links(factors, false);
  return result;
}

void IterationSimulator::Impl::collect(const ir::Program& program, ProgramTasks& tasks,
                                       const IterationOptions& options, Seconds start,
                                       IterationResult& result) const {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const TaskId last = tasks.last({static_cast<std::int32_t>(i)});
    result.iteration_time = std::max(result.iteration_time, engine.end_time(last) - start);
  }
  const Instant end = to_instant(result.iteration_time);
  ir::RunLog& log = result.log;
  log.source = "simulator";
  log.iterations = {{0, {}, end}};
  const MemoryTimeline memory(program);
  if (options.record_memory) log.memory.reserve(memory.max_samples());
  if (options.record_spans) log.spans.reserve(program.ops.size());
  result.pipeline_times.resize(program.pipelines.size());
  std::vector<ir::Span> spans;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank{static_cast<std::int32_t>(r)};
    spans.clear();
    for (std::size_t i = program.stream_begin[r * ir::kStreams];
         i < program.stream_begin[(r + 1) * ir::kStreams]; ++i) {
      const OpId id{static_cast<std::int32_t>(i)};
      const ir::Op& op = program.ops[i];
      const Seconds begins = engine.start_time(tasks.first(id)) - start;
      const Seconds ends = engine.end_time(tasks.last(id)) - start;
      ir::Span span{rank, id, to_instant(begins), to_instant(ends), {}, tasks.payload(id)};
      if (op.inner != ir::kNone) {
        const Instant computed = std::min(to_instant(begins + tasks.computed(id)), span.end);
        span.inner = span.end - computed;
      }
      if (is_backward(op.kind)) {
        Seconds& latest =
            result.pipeline_times[static_cast<std::size_t>(program.ranks[r].pipeline)];
        latest = std::max(latest, ends);
      }
      spans.push_back(span);
    }
    result.ranks.push_back(rank_breakdown(program, spans, end - Instant{}));
    result.peak_memory.push_back(
        memory.replay(rank, spans, options.record_memory ? &log.memory : nullptr));
    if (options.record_spans) log.spans.insert(log.spans.end(), spans.begin(), spans.end());
    log.clocks.push_back({rank, {}, {}});
  }
  result.breakdown = mean_breakdown(program, result.ranks);
}

void IterationSimulator::Impl::collect_links(const std::vector<Bytes>& before, ProgramTasks& tasks,
                                             const LinkFactors& factors,
                                             IterationResult& result) const {
  std::vector<Bytes> carried = engine.link_bytes();
  for (std::size_t i = 0; i < carried.size(); ++i) carried[i] -= before[i];
  std::vector<LinkId> route;
  tasks.for_each_closed_form([&](DeviceId source, DeviceId destination, Bytes bytes) {
    route.clear();
    topology.route(source, destination, route);
    for (const LinkId link : route) carried[link.index()] += bytes;
  });
  const auto reported = [&](std::size_t i) {
    return !topology.links()[i].uncontended && carried[i].value > 0;
  };
  std::size_t count = 0;
  for (std::size_t i = 0; i < carried.size(); ++i) count += reported(i) ? 1 : 0;
  result.log.links.reserve(count);
  for (std::size_t i = 0; i < carried.size(); ++i) {
    if (!reported(i)) continue;
    const models::Link& link = topology.links()[i];
    const auto slow = factors.find({static_cast<std::int32_t>(i)});
    const double factor = slow == factors.end() ? 1.0 : slow->second;
    result.log.links.push_back({link.name, link.bandwidth / factor, carried[i]});
  }
}

IterationSimulator::IterationSimulator(const models::Cluster& cluster,
                                       const models::Topology& topology, bool count_links,
                                       const PlatformExtension& extension)
    : impl_(std::make_unique<Impl>(cluster, topology, count_links, extension)) {}
IterationSimulator::~IterationSimulator() = default;

IterationResult IterationSimulator::run(const ir::Program& program,
                                        const models::ProgramPrices& prices,
                                        const IterationOptions& options) {
  return impl_->run(program, prices, options);
}

IterationResult IterationSimulator::run(const ir::Program& program, const models::Pricer& pricer,
                                        const IterationOptions& options) {
  return run(program, models::ProgramPrices(program, pricer), options);
}

const models::Cluster& IterationSimulator::cluster() const { return impl_->cluster; }
const models::Topology& IterationSimulator::topology() const { return impl_->topology; }
FlowEngine& IterationSimulator::engine() { return impl_->engine; }

std::vector<std::pair<std::string, std::string>> IterationSimulator::effective_config() const {
  return impl_->engine.effective_config();
}

models::Evaluation evaluation_from(const IterationResult& result, const ir::Plan& plan,
                                   const models::Cluster& cluster, const models::Workload& workload,
                                   ir::MemoryVerdict memory) {
  models::Evaluation evaluation;
  const Seconds time = result.iteration_time;
  evaluation.iteration_time = time;
  evaluation.memory = std::move(memory);
  evaluation.breakdown = result.breakdown;
  evaluation.pipeline_times = result.pipeline_times;
  evaluation.tokens_per_second = models::tokens_per_second(plan, workload, time);
  const FlopsPerSecond peak = models::total_peak(plan, cluster, workload.dtype);
  evaluation.mfu = models::utilisation(models::step_model_flops(plan, workload), time, peak);
  evaluation.hfu = models::utilisation(models::step_hardware_flops(plan, workload), time, peak);
  if (const auto dollars = models::dollars_per_million_tokens(plan, cluster, workload, time)) {
    evaluation.dollars_per_million_tokens = *dollars;
    evaluation.priced = true;
  }
  return evaluation;
}

}  // namespace orrery::sim
