#include "sim/iteration/iteration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/op_traits.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration_bytes.h"
#include "sim/iteration/iteration_chain.h"
#include "sim/iteration/memory_timeline.h"
#include "sim/iteration/pace.h"
#include "sim/iteration/program_tasks.h"
#include "sim/iteration/slow_links.h"

namespace orrery::sim {
namespace {

/// Ops from which memory counts; a small program that runs again is faster with its memory kept.
constexpr std::size_t kLargeProgram = 100'000;

/// Iterations of a staggered program: simulated at first, and at most; tasks must stay below
/// kMostChainedOps, except those of the first kFirstChain iterations.
constexpr int kFirstChain = 2;
constexpr int kLongestChain = 32;
constexpr std::size_t kMostChainedOps = 16'000'000;

/// Times closer than this are equal: flows that end so close together may end at one instant
/// (FlowOptions::timing_precision), at either end of a duration.
constexpr Seconds kPrecision{2e-9};

/// What rounding three instants to whole nanoseconds may add up to.
constexpr Nanoseconds kRounded{2};

/// Iterations in the log of a staggered program: the middle one of three has both neighbors, in
/// which some ranks already or still are while it runs.
constexpr int kLoggedChain = 3;

ir::RankBreakdown mean_over(int iterations, ir::RankBreakdown parts) {
  for (Nanoseconds* part : {&parts.compute, &parts.tensor_parallel, &parts.zero, &parts.pipeline,
                            &parts.data_parallel, &parts.optimizer, &parts.bubble}) {
    part->count /= iterations;
  }
  return parts;
}

/// Mean over ranks, each weighted by the number of devices that it represents.
models::Breakdown mean_breakdown(const ir::Program& program,
                                 const std::vector<ir::RankBreakdown>& ranks) {
  models::Breakdown mean;
  double devices = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto weight = static_cast<double>(program.ranks[r].devices.size());
    devices += weight;
    mean.compute += weight * to_seconds(ranks[r].compute);
    mean.tensor_parallel += weight * to_seconds(ranks[r].tensor_parallel);
    mean.zero += weight * to_seconds(ranks[r].zero);
    mean.pipeline += weight * to_seconds(ranks[r].pipeline);
    mean.data_parallel += weight * to_seconds(ranks[r].data_parallel);
    mean.optimizer += weight * to_seconds(ranks[r].optimizer);
    mean.bubble += weight * to_seconds(ranks[r].bubble);
  }
  if (devices == 0) return mean;
  for (Seconds* part : {&mean.compute, &mean.tensor_parallel, &mean.zero, &mean.pipeline,
                        &mean.data_parallel, &mean.optimizer, &mean.bubble}) {
    *part *= 1 / devices;
  }
  return mean;
}

/// What a run of a guess says: its result, or what it got wrong.
constexpr char kExact = 'e';
constexpr char kMeetings = 'm';

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

  /// `intervals`: of the flows of a folded program; null: nobody asks.
  IterationResult run(const ir::Program& program, const models::ProgramPrices& prices,
                      const IterationOptions& options, const Folding* folding = nullptr,
                      std::vector<FlowInterval>* intervals = nullptr);
  /// The outcome of a run of consecutive iterations: one, or several of a staggered program.
  struct Ran {
    IterationChain& chain;
    const std::vector<RankEnds>& ends;
    const Pace& pace;
    Seconds origin;  ///< Instants of the log count from here.
    int first_logged = 0;
    const Folding* folding = nullptr;

    int last() const { return chain.count() - 1; }
    Seconds begin(int iteration, RankId rank) const { return ends[iteration][rank.index()]; }
    Seconds end(int iteration, RankId rank) const { return begin(iteration + 1, rank); }
  };
  void run_to_end(const ir::Program& program);
  void collect(const ir::Program& program, const Ran& ran, const IterationOptions& options,
               IterationResult& result) const;
  void collect_rank(const ir::Program& program, const Ran& ran, const IterationOptions& options,
                    RankId rank, const MemoryTimeline& memory, IterationResult& result) const;
  std::vector<ir::Span> spans_of(const ir::Program& program, ProgramTasks& tasks, RankId rank,
                                 Seconds origin) const;
  void collect_links(std::vector<Bytes> carried, const LinkFactors& factors,
                     IterationResult& result) const;
  std::vector<Bytes> carried_since(const std::vector<Bytes>& before, IterationChain& chain) const;
  std::vector<Bytes> carried_by_all(const Folding& folding, IterationChain& chain) const;
  void scale_links(const LinkFactors& factors, bool slow);
  /// The first of them.
  RouteId add_routes(const Folding* folding);

  const models::Cluster& cluster;
  const models::Topology& topology;
  bool count_links;
  FlowEngine engine;
};

void IterationSimulator::Impl::scale_links(const LinkFactors& factors, bool slow) {
  for (const auto& [link, factor] : factors) {
    const BytesPerSecond bandwidth = topology.links()[link].bandwidth;
    engine.set_link_bandwidth(link, slow ? bandwidth / factor : bandwidth);
  }
}

IterationResult IterationSimulator::Impl::run(const ir::Program& program,
                                              const models::ProgramPrices& prices,
                                              const IterationOptions& options,
                                              const Folding* folding,
                                              std::vector<FlowInterval>* intervals) {
  const std::vector<std::string> problems = find_problems(options, cluster, topology);
  ORRERY_CHECK(problems.empty(), "iteration options: {}", problems.front());
  const bool links = options.record_links && count_links;
  const LinkFactors factors = link_factors(topology, options);
  const models::PathFunction path = path_function(topology, factors);
  scale_links(factors, true);

  const FlowEngine::Mark mark = engine.mark();
  const bool staggered = program.header.optimizer_start == ir::OptimizerStart::staggered;
  IterationResult result;
  const bool logs = options.record_spans || options.record_memory;
  std::optional<Pace> known;
  for (int count = staggered ? kFirstChain : 1;;) {
    const std::vector<Bytes> carried =
        links && folding == nullptr ? engine.link_bytes() : std::vector<Bytes>{};
    const Seconds start = engine.now();
    IterationChain chain({program,
                          prices,
                          cluster,
                          {topology, path, factors},
                          options,
                          folding,
                          add_routes(folding)},
                         engine, count);
    run_to_end(program);
    const std::vector<RankEnds> ends = chain.ends(start);
    const Pace pace = known.value_or(find_pace(ends, kPrecision));
    const bool longest =
        count >= kLongestChain || 2 * as_size(count) * program.ops.size() > kMostChainedOps;
    if (staggered && !pace.settled && !longest) {
      engine.rewind(mark);
      count *= 2;
      continue;
    }
    if (staggered && logs && count < kLoggedChain) {
      known = pace;  // what is recorded changes no time
      engine.rewind(mark);
      count = kLoggedChain;
      continue;
    }
    if (folding == nullptr && program.ops.size() >= kLargeProgram)
      engine.shrink(mark);  // the log takes as much
    result.work = chain.work();
    const int logged = std::max(0, count - kLoggedChain);
    const Seconds origin = earliest(ends[logged]);
    collect(program, {chain, ends, pace, origin, logged, folding}, options, result);
    if (intervals != nullptr) {
      for (int i = 0; i < count; ++i) chain.iteration(i).append_intervals(i, *intervals);
    }
    result.iterations = count;
    result.settled = !staggered || pace.settled;
    if (!result.settled) {
      result.log.events.push_back(
          {result.log.iterations.back().end, "unsettled",
           fmt::format("after {} iterations ranks do not keep one pace; the iteration time is the "
                       "mean over the last {}",
                       count, pace.window)});
    }
    if (links) {
      collect_links(
          folding == nullptr ? carried_since(carried, chain) : carried_by_all(*folding, chain),
          factors, result);
    }
    engine.rewind(mark);
    break;
  }
  scale_links(factors, false);
  return result;
}

void IterationSimulator::Impl::run_to_end(const ir::Program& program) {
  engine.run();
  const std::vector<TaskId> unfinished = engine.unfinished();
  ORRERY_CHECK(unfinished.empty(), "the program of {} ops is stuck: {} of its tasks never start",
               program.ops.size(), unfinished.size());
}

std::vector<ir::Span> IterationSimulator::Impl::spans_of(const ir::Program& program,
                                                         ProgramTasks& tasks, RankId rank,
                                                         Seconds origin) const {
  std::vector<ir::Span> spans;
  const std::size_t first = program.stream_begin[rank.index() * ir::kStreams];
  const std::size_t end = program.stream_begin[(rank.index() + 1) * ir::kStreams];
  spans.reserve(end - first);
  for (std::size_t i = first; i < end; ++i) {
    const OpId id{static_cast<std::int32_t>(i)};
    const Seconds begins = engine.start_time(tasks.first(id)) - origin;
    const Seconds ends = engine.end_time(tasks.last(id)) - origin;
    ir::Span span{rank, id, to_instant(begins), to_instant(ends), {}, tasks.payload(id), {}};
    if (program.ops[i].inner != ir::kNone) {
      const Instant computed = std::min(to_instant(begins + tasks.computed(id)), span.end);
      span.inner = span.end - computed;
      span.gathers = std::min(to_nanoseconds(tasks.gathered(id)), span.inner);
      if (span.inner - span.gathers <= kRounded) span.gathers = span.inner;
    }
    spans.push_back(span);
  }
  return spans;
}

void IterationSimulator::Impl::collect(const ir::Program& program, const Ran& ran,
                                       const IterationOptions& options,
                                       IterationResult& result) const {
  result.iteration_time = ran.pace.period;
  ir::RunLog& log = result.log;
  log.source = "simulator";
  for (int i = ran.first_logged; i <= ran.last(); ++i) {
    const std::size_t row = i;
    log.iterations.push_back({i - ran.first_logged,
                              to_instant(earliest(ran.ends[row]) - ran.origin),
                              to_instant(latest(ran.ends[row + 1]) - ran.origin)});
  }
  const MemoryTimeline memory(program);
  const std::size_t logged = log.iterations.size();
  if (options.record_memory) log.memory.reserve(logged * memory.max_samples());
  if (options.record_spans) log.spans.reserve(logged * program.ops.size());
  result.pipeline_times.resize(program.pipelines.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank{static_cast<std::int32_t>(r)};
    if (ran.folding == nullptr || ran.folding->is_built(rank)) {
      collect_rank(program, ran, options, rank, memory, result);
      continue;
    }
    const std::size_t same = ran.folding->same_rank[r].index();
    result.ranks.push_back(result.ranks[same]);
    result.peak_memory.push_back(result.peak_memory[same]);
    log.clocks.push_back({rank, {}, {}});
  }
  result.simulated_pipelines = static_cast<int>(program.pipelines.size());
  if (ran.folding != nullptr) {
    result.simulated_pipelines = ran.folding->built();
    for (std::size_t p = 0; p < result.pipeline_times.size(); ++p) {
      result.pipeline_times[p] = result.pipeline_times[ran.folding->representative[p]];
    }
  }
  result.breakdown = mean_breakdown(program, result.ranks);
}

void IterationSimulator::Impl::collect_rank(const ir::Program& program, const Ran& ran,
                                            const IterationOptions& options, RankId rank,
                                            const MemoryTimeline& memory,
                                            IterationResult& result) const {
  const int first_counted = ran.last() - ran.pace.window + 1;
  const bool recorded = options.record_spans || options.record_memory;
  const int first = recorded ? std::min(first_counted, ran.first_logged) : first_counted;
  // One iteration alone ends for all ranks when the last one ends.
  const bool alone = ran.chain.count() == 1;
  const Instant from = to_instant(ran.begin(first_counted, rank) - ran.origin);
  const Instant to = alone ? to_instant(result.iteration_time)
                           : to_instant(ran.end(ran.last(), rank) - ran.origin);
  std::vector<ir::Span> counted;
  std::vector<ir::Span>& log = result.log.spans;
  const std::size_t logged_before = log.size();
  Bytes peak;  // The same in all iterations.
  for (int i = first; i <= ran.last(); ++i) {
    const std::vector<ir::Span> spans = spans_of(program, ran.chain.iteration(i), rank, ran.origin);
    const bool logs = i >= ran.first_logged;
    if (options.record_spans && logs) log.insert(log.end(), spans.begin(), spans.end());
    const Instant begin = to_instant(ran.begin(i, rank) - ran.origin);
    peak = memory.replay(rank, begin, spans,
                         options.record_memory && logs ? &result.log.memory : nullptr);
    if (i < first_counted) continue;
    for (ir::Span span : spans) {
      span.start = Instant{(span.start - from).count};
      span.end = Instant{(span.end - from).count};
      counted.push_back(span);
    }
  }
  std::stable_sort(log.begin() + static_cast<std::ptrdiff_t>(logged_before), log.end(),
                   [](const ir::Span& a, const ir::Span& b) { return a.op < b.op; });
  result.ranks.push_back(
      mean_over(ran.pace.window, ir::rank_breakdown(program, counted, to - from)));
  result.peak_memory.push_back(peak);
  result.log.clocks.push_back({rank, {}, {}});
  Seconds& latest_pass = result.pipeline_times[program.ranks[rank.index()].pipeline];
  ProgramTasks& tasks = ran.chain.iteration(ran.last());
  for (const ir::Op& op : program.stream_ops(rank, ir::Stream::compute)) {
    if (!ir::is_backward(op.kind)) continue;
    const OpId id{static_cast<std::int32_t>(&op - program.ops.data())};
    latest_pass =
        std::max(latest_pass, engine.end_time(tasks.last(id)) - ran.begin(ran.last(), rank));
  }
}

RouteId IterationSimulator::Impl::add_routes(const Folding* folding) {
  RouteId first;
  if (folding == nullptr) return first;
  for (const Folding::Route& route : folding->routes) {
    const RouteId id = engine.add_route(route.links, route.latency);
    if (!first.valid()) first = id;
  }
  return first;
}

/// Per iteration.
std::vector<Bytes> IterationSimulator::Impl::carried_since(const std::vector<Bytes>& before,
                                                           IterationChain& chain) const {
  std::vector<Bytes> carried = engine.link_bytes();
  const auto iterations = static_cast<double>(chain.count());  // All carry the same.
  for (std::size_t i = 0; i < carried.size(); ++i) {
    carried[i] = (carried[i] - before[i]) / iterations;
  }
  std::vector<LinkId> route;
  chain.iteration(0).for_each_closed_form([&](DeviceId source, DeviceId destination, Bytes bytes) {
    route.clear();
    topology.route(source, destination, route);
    for (const LinkId link : route) carried[link.index()] += bytes;
  });
  return carried;
}

/// The same of a folded program: every flow of a class carries what the simulated one does.
std::vector<Bytes> IterationSimulator::Impl::carried_by_all(const Folding& folding,
                                                            IterationChain& chain) const {
  std::vector<Bytes> carried(topology.links().size());
  const std::vector<Bytes> by_route = chain.iteration(0).bytes_by_route();
  for (std::size_t i = 0; i < folding.crossings.size(); ++i) {
    const std::size_t end = i + 1 < folding.crossings.size() ? folding.crossings[i + 1].first_link
                                                             : folding.crossed.size();
    for (std::size_t at = folding.crossings[i].first_link; at < end; ++at) {
      carried[folding.crossed[at].index()] += by_route[folding.crossings[i].route];
    }
  }
  std::vector<std::vector<std::size_t>> members(folding.representative.size());
  std::unordered_map<std::int32_t, std::pair<std::size_t, std::size_t>> position;
  for (std::size_t p = 0; p < members.size(); ++p) {
    const std::size_t built = folding.representative[p];
    members[built].push_back(p);
    if (built != p) continue;
    for (std::size_t i = 0; i < folding.devices[p].size(); ++i) {
      position[folding.devices[p][i].value] = {p, i};
    }
  }
  std::vector<LinkId> route;
  chain.iteration(0).for_each_closed_form([&](DeviceId source, DeviceId destination, Bytes bytes) {
    const auto [pipeline, from] = position.at(source.value);
    const auto [same, to] = position.at(destination.value);
    const bool inside = same == pipeline;
    for (const std::size_t member : members[pipeline]) {
      route.clear();
      const std::vector<DeviceId>& own = folding.devices[member];
      topology.route(own[from], inside ? own[to] : destination, route);
      for (const LinkId link : route) carried[link.index()] += bytes;
    }
  });
  return carried;
}

void IterationSimulator::Impl::collect_links(std::vector<Bytes> carried, const LinkFactors& factors,
                                             IterationResult& result) const {
  for (const LinkId id : topology.links().ids()) {
    const models::Link& link = topology.links()[id];
    const Bytes bytes = carried[id.index()];
    if (link.uncontended || bytes.value <= 0) continue;
    const auto slow = factors.find(id);
    const double factor = slow == factors.end() ? 1.0 : slow->second;
    result.log.links.push_back({topology.name_of(id), link.bandwidth / factor, bytes});
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

std::variant<IterationResult, std::string> IterationSimulator::try_run(
    FoldedIteration& iteration, const models::ProgramPrices& prices,
    const IterationOptions& options) {
  if (!iteration.needs_check()) {
    return impl_->run(iteration.program(), prices, options, iteration.folding());
  }
  std::vector<FlowInterval> flows;
  IterationResult result =
      impl_->run(iteration.program(), prices, options, iteration.folding(), &flows);
  std::string meetings = iteration.find_meetings(flows);
  if (!meetings.empty()) return meetings;
  return result;
}

IterationResult IterationSimulator::run(FoldedIteration& iteration,
                                        const models::ProgramPrices& prices,
                                        const models::Pricer& pricer,
                                        const IterationOptions& options) {
  std::optional<models::ProgramPrices> repriced;
  while (iteration.needs_check()) {
    // Each guess runs in a copy, so that the next one finds the clock where this one did: shares of
    // links amplify differences of the last bit (docs/equations.md).
    ForkResult told = run_forked([&] {
      const auto outcome = try_run(iteration, repriced ? *repriced : prices, options);
      const auto* result = std::get_if<IterationResult>(&outcome);
      return result != nullptr ? kExact + to_bytes(*result)
                               : kMeetings + std::get<std::string>(outcome);
    });
    if (const auto* failure = std::get_if<ChildFailure>(&told)) {
      throw std::runtime_error("simulation failed: " + failure->message);
    }
    const std::string_view bytes = std::get<std::string>(told);
    if (bytes.front() == kExact) return iteration_from_bytes(bytes.substr(1));
    iteration.fold_again(bytes.substr(1));
    repriced.emplace(iteration.program(), pricer);
  }
  return impl_->run(iteration.program(), repriced ? *repriced : prices, options,
                    iteration.folding());
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
  models::Evaluation evaluation =
      models::evaluation_of(plan, cluster, workload, result.iteration_time, std::move(memory));
  evaluation.breakdown = result.breakdown;
  evaluation.pipeline_times = result.pipeline_times;
  return evaluation;
}

}  // namespace orrery::sim
