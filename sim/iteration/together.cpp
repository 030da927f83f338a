#include "sim/iteration/together.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "models/base/check.h"
#include "sim/iteration/iteration_chain.h"
#include "sim/iteration/slow_links.h"

namespace orrery::sim {
namespace {

constexpr int kFewestIterations = 8;
constexpr int kMostIterations = 64;
/// Of all jobs together, but for the first kFewestIterations of each: bounds memory.
constexpr std::size_t kMostOpsTogether = 16'000'000;

/// Links as slow as the options say, for as long as this lives.
class ScaledLinks {
 public:
  ScaledLinks(IterationSimulator& simulator, const IterationOptions& options)
      : simulator_(simulator), factors_(link_factors(simulator.topology(), options)) {
    scale(true);
  }
  ~ScaledLinks() { scale(false); }
  ScaledLinks(const ScaledLinks&) = delete;
  ScaledLinks& operator=(const ScaledLinks&) = delete;
  const LinkFactors& factors() const { return factors_; }
  models::PathFunction path() const { return path_function(simulator_.topology(), factors_); }

 private:
  void scale(bool slow) {
    for (const auto& [link, factor] : factors_) {
      const BytesPerSecond bandwidth = simulator_.topology().links()[link].bandwidth;
      simulator_.engine().set_link_bandwidth(link, slow ? bandwidth / factor : bandwidth);
    }
  }
  IterationSimulator& simulator_;
  LinkFactors factors_;
};

ProgramTasks::Input input_of(const IterationSimulator& simulator, const JobProgram& job,
                             const models::Network& network, const IterationOptions& options) {
  return {job.program, job.prices, simulator.cluster(), network, options};
}

bool share_a_link(const LinkTraffic& a, const LinkTraffic& b) {
  for (const LinkId link : a.flows.ids()) {
    if (a.flows[link].value > 0 && b.flows[link].value > 0) return true;
  }
  return false;
}

/// The event loop of run_together(): always has the next iteration of each job ready.
class SideBySide {
 public:
  SideBySide(IterationSimulator& simulator, std::span<const JobProgram> jobs,
             const IterationOptions& options)
      : engine_(simulator.engine()), links_(simulator, options), path_(links_.path()) {
    const models::Network network{simulator.topology(), path_, links_.factors()};
    for (const JobProgram& job : jobs) {
      ORRERY_CHECK(!job.program.ops.empty(), "job {} does nothing", runs_.size());
      const bool staggered = job.program.header.optimizer_start == ir::OptimizerStart::staggered;
      Run run{
          std::make_unique<IterationChain>(input_of(simulator, job, network, options), engine_, 1,
                                           staggered ? IterationChain::Next::after_own_ops
                                                     : IterationChain::Next::after_all_ops),
          job.program.ops.size(),
          {}};
      if (job.start.value > 0) run.chain->delay(job.start);
      last_start_ = std::max(last_start_, engine_.now() + job.start);
      runs_.push_back(std::move(run));
      extend(runs_.size() - 1);
    }
  }

  std::vector<JobPace> run() {
    engine_.on_end(TaskKind::barrier, [this](TaskId task, TaskState) { passed(task); });
    engine_.run();
    engine_.on_end(TaskKind::barrier, {});
    ORRERY_CHECK(stopped_, "{} jobs are stuck", runs_.size());
    std::vector<JobPace> paces;
    for (const Run& run : runs_) paces.push_back(pace_of(run));
    return paces;
  }

 private:
  struct Run {
    std::unique_ptr<IterationChain> chain;
    std::size_t ops;
    std::vector<Seconds> ends;  ///< Of iterations.
  };
  /// A barrier that ranks pass from one iteration to the next.
  struct Gate {
    std::size_t job;
    int iteration;  ///< That they have finished.
  };

  void extend(std::size_t job) {
    IterationChain& chain = *runs_[job].chain;
    const std::vector<TaskId> gates = chain.extend();
    const int finished = chain.count() - 2;
    for (const TaskId gate : gates) gates_[gate.value] = {job, finished};
    left_[{job, finished}] = gates.size();
    ops_ += runs_[job].ops;
  }

  void passed(TaskId task) {
    const auto found = gates_.find(task.value);
    if (stopped_ || found == gates_.end()) return;
    const Gate gate = found->second;
    gates_.erase(found);
    Run& run = runs_[gate.job];
    if (run.chain->count() == gate.iteration + 2) extend(gate.job);
    if (--left_[{gate.job, gate.iteration}] > 0) return;
    left_.erase({gate.job, gate.iteration});
    run.ends.push_back(engine_.end_time(task));
    if (enough()) {
      stopped_ = true;
      engine_.cancel(engine_.unfinished());
    }
  }

  /// Ends of iterations since all jobs run.
  std::span<const Seconds> counted(const Run& run) const {
    const auto first = std::lower_bound(run.ends.begin(), run.ends.end(), last_start_);
    return {first, run.ends.end()};
  }

  JobPace pace_of(const Run& run) const {
    const std::span<const Seconds> ends = counted(run);
    const std::size_t last = ends.size() - 1, half = last / 2, quarter = last / 4;
    const auto mean = [&](std::size_t from, std::size_t to) {
      return (ends[to] - ends[from]) / static_cast<double>(to - from);
    };
    JobPace pace;
    pace.period = mean(half, last);
    pace.iterations = static_cast<int>(last);
    const Seconds before = mean(quarter, half);
    pace.change = before == pace.period ? 0 : std::abs(1 - before / pace.period);
    pace.steady = pace.change <= kSteady;
    return pace;
  }

  bool enough() {
    for (const Run& run : runs_) {
      if (counted(run).size() <= static_cast<std::size_t>(wanted_)) return false;
    }
    const bool steady = std::all_of(runs_.begin(), runs_.end(),
                                    [&](const Run& run) { return pace_of(run).steady; });
    if (steady || wanted_ >= kMostIterations || ops_ > kMostOpsTogether) return true;
    wanted_ *= 2;
    return false;
  }

  FlowEngine& engine_;
  ScaledLinks links_;
  models::PathFunction path_;
  std::vector<Run> runs_;
  std::unordered_map<std::int32_t, Gate> gates_;
  std::map<std::pair<std::size_t, int>, std::size_t> left_;  ///< Gates of an iteration not passed.
  Seconds last_start_;
  int wanted_ = kFewestIterations;
  std::size_t ops_ = 0;
  bool stopped_ = false;
};

}  // namespace

LinkTraffic traffic_of(IterationSimulator& simulator, const JobProgram& job,
                       const IterationOptions& options) {
  FlowEngine& engine = simulator.engine();
  const models::Topology& topology = simulator.topology();
  const ScaledLinks links(simulator, options);
  const models::PathFunction path = links.path();
  const std::vector<Bytes> before = engine.link_bytes();
  const FlowEngine::Mark mark = engine.mark();
  LinkTraffic traffic;
  IterationChain chain(input_of(simulator, job, {topology, path, links.factors()}, options), engine,
                       1);
  engine.run();
  ORRERY_CHECK(engine.unfinished().empty(), "the program of {} ops is stuck",
               job.program.ops.size());
  traffic.flows = IdVector<LinkId, Bytes>(engine.link_bytes());
  for (const LinkId link : traffic.flows.ids()) {
    traffic.flows[link] = traffic.flows[link] - before[link.index()];
  }
  traffic.closed_forms.resize(traffic.flows.size());
  std::vector<LinkId> route;
  chain.iteration(0).for_each_closed_form([&](DeviceId source, DeviceId destination, Bytes bytes) {
    route.clear();
    topology.route(source, destination, route);
    for (const LinkId link : route) {
      if (!topology.links()[link].uncontended) traffic.closed_forms[link] += bytes;
    }
  });
  engine.rewind(mark);
  return traffic;
}

std::vector<std::vector<std::size_t>> sharing_jobs(std::span<const LinkTraffic> traffic) {
  std::vector<std::size_t> first(traffic.size());  // Of the jobs that share links with each.
  std::iota(first.begin(), first.end(), std::size_t{0});
  for (std::size_t b = 0; b < traffic.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (!share_a_link(traffic[a], traffic[b])) continue;
      const auto [low, high] = std::minmax(first[a], first[b]);
      std::replace(first.begin(), first.end(), std::size_t{high}, std::size_t{low});
    }
  }
  std::vector<std::vector<std::size_t>> all(traffic.size());
  for (std::size_t job = 0; job < traffic.size(); ++job) all[first[job]].push_back(job);
  std::erase_if(all, [](const auto& jobs) { return jobs.empty(); });
  return all;
}

std::vector<JobPace> run_together(IterationSimulator& simulator, std::span<const JobProgram> jobs,
                                  const IterationOptions& options) {
  FlowEngine& engine = simulator.engine();
  const FlowEngine::Mark mark = engine.mark();
  const std::vector<JobPace> paces = SideBySide(simulator, jobs, options).run();
  engine.rewind(mark);
  return paces;
}

}  // namespace orrery::sim
