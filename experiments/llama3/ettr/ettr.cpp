#include "experiments/llama3/ettr/ettr.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "models/base/rng.h"
#include "models/spec/library.h"
#include "planners/recovery/kit/checkpointing.h"
#include "sim/replay/fixed_timer.h"
#include "sim/replay/replay.h"
#include "traces/generate/generate.h"
#include "traces/statistics.h"

namespace orrery::experiments {
namespace {

using models::PlanPointer;

/// Iterations between checkpoints: any number gives the same time. Without checkpoints iterations
/// are so short that the one in flight does not count (1e-5 of the time at most).
constexpr int kIterations = 100;
constexpr Seconds kShort{0.02};

double rate(const EttrPoint& point) {
  return point.gpus / 8.0 * point.failures_per_1000_node_days / 1000 / 86400;
}

PlanPointer one_device() {
  auto plan = std::make_shared<ir::Plan>();
  ir::Segment segment;
  segment.first_block = segment.last_block = {0};
  ir::Group group;
  group.devices = {DeviceId{0}};
  segment.groups = {group};
  ir::Pipeline pipeline;
  pipeline.stages = {{{segment}}};
  plan->pipelines = {pipeline};
  return plan;
}

class EttrPolicy final : public models::RecoveryPolicy {
 public:
  /// `recovered`: by number of the failure, when its recovery ends if recoveries wait for one
  /// another.
  EttrPolicy(const EttrPoint& point, std::vector<Instant> recovered)
      : point_(point), recovered_(std::move(recovered)), plan_(one_device()) {}

  std::string name() const override { return "ettr"; }
  std::variant<PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>&) const override {
    return plan_;
  }

  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan&, Seconds) const override {
    if (point_.recovery != EttrRecovery::checkpoint) return {};
    models::CheckpointLevel level;
    level.every = kIterations;
    level.stall = level.persist = to_nanoseconds(point_.stall);
    level.source = point_.source;
    return {level};
  }

  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override {
    models::RecoveryDecision decision;
    decision.action = models::RecoveryDecision::Action::resume;
    decision.plan = plan_;
    decision.resume_iteration = state.iteration;
    Nanoseconds stall = to_nanoseconds(point_.restart);
    if (point_.recovery == EttrRecovery::checkpoint) {
      decision.resume_iteration = state.replicas.empty() ? 0 : state.replicas.front().iteration;
    } else if (point_.recovery == EttrRecovery::queued) {
      stall = recovered_[static_cast<std::size_t>(events.back().sequence)] - state.now;
    }
    decision.phases = {{models::RecoveryPhase::Kind::reinitialize, stall, point_.source}};
    decision.reason = "failure";
    return decision;
  }

 private:
  const EttrPoint& point_;
  std::vector<Instant> recovered_;
  PlanPointer plan_;
};

models::Cluster one_gpu() {
  models::Cluster cluster;
  cluster.name = "ettr";
  models::GpuType gpu;
  gpu.name = "gpu";
  gpu.vendor = "any";
  gpu.peak = {{ir::Dtype::bf16, FlopsPerSecond{1e15}}};
  gpu.memory = 80_GiB;
  gpu.memory_bandwidth = BytesPerSecond{1e12};
  cluster.gpu_types = {gpu};
  cluster.links["slot"] = {"slot", BytesPerSecond{50e9}, Seconds{4e-6}, 1, false, "any"};
  cluster.links["nic"] = {"nic", BytesPerSecond{25e9}, Seconds{4e-6}, 1, false, "any"};
  models::Node node;
  node.name = "node";
  node.gpu_types = {0};
  node.domains = {{{0}, "slot"}};
  node.pcie = {{{0}, "slot", ""}};
  node.nics = {{"nic", {}}};
  cluster.nodes = {node};
  models::seal(cluster);
  return cluster;
}

/// Failures of the job with exponential gaps.
traces::Trace failures_of_job(Seconds mean, std::uint64_t seed, int failures) {
  traces::Trace trace;
  trace.nodes = {{"node", "gpu", 1}};
  trace.horizon = to_nanoseconds(mean * static_cast<double>(failures));
  Rng rng(seed);
  double at = rng.exponential(1 / mean.value);
  while (to_nanoseconds(Seconds{at}) < trace.horizon) {
    ir::ClusterEvent event;
    event.time = Instant{} + to_nanoseconds(Seconds{at});
    event.kind = ir::EventKind::fail;
    event.scope.kind = ir::EventScope::Kind::job;
    event.sequence = static_cast<std::int64_t>(trace.events.size());
    trace.events.push_back(event);
    at += rng.exponential(1 / mean.value);
  }
  return trace;
}

}  // namespace

std::vector<EttrPoint> ettr_points() {
  const char* reliability = "arXiv 2410.21680";
  const char* ft_hsdp = "arXiv 2602.00277";
  const auto minutes = [](double count) { return Seconds{60 * count}; };
  const auto queued = EttrRecovery::queued;
  const auto from_scratch = EttrRecovery::from_scratch;
  std::vector<EttrPoint> points = {
      {"16k, every 60 min", 16384, 6.5, minutes(5), minutes(60), {}, {}, 0.7, "about", reliability},
      {"16k, every 5 min", 16384, 6.5, minutes(5), minutes(5), {}, {}, 0.93, "about", reliability},
      {"12k, writes of 10 s",
       12288,
       6.5,
       minutes(5),
       {},
       Seconds{10},
       {},
       0.9,
       "about",
       reliability},
      {"12k, 1 per 1000 node-days",
       12288,
       1,
       minutes(5),
       {},
       minutes(5),
       {},
       0.9,
       "about",
       reliability},
      {"100k, RSC-2", 100000, 2.34, minutes(2), minutes(2), {}, {}, 0.9, "at least", reliability},
      {"98k, stalls of 10 min", 98304, 6.5, minutes(10), {}, {}, queued, 0.44, "measured", ft_hsdp},
      {"98k, stalls of 3 min", 98304, 6.5, minutes(3), {}, {}, queued, 0.80, "measured", ft_hsdp},
      {"98k, stalls of 10 min, anew",
       98304,
       6.5,
       minutes(10),
       {},
       {},
       from_scratch,
       {},
       "",
       ft_hsdp},
      {"98k, stalls of 3 min, anew", 98304, 6.5, minutes(3), {}, {}, from_scratch, {}, "", ft_hsdp},
  };
  for (EttrPoint& point : points) {
    if (point.recovery != EttrRecovery::checkpoint || point.interval.value > 0) continue;
    point.interval = planners::young_interval(point.stall, rate(point));
  }
  return points;
}

Seconds mean_between_failures(const EttrPoint& point) { return Seconds{1 / rate(point)}; }

double exact_ettr(const EttrPoint& point) {
  const double mean = mean_between_failures(point).value;
  const double restart = point.restart.value / mean;
  if (point.recovery == EttrRecovery::queued) return 1 - restart;
  if (point.recovery == EttrRecovery::from_scratch) return std::exp(-restart);
  const double cycle = (point.interval + point.stall).value / mean;
  return point.interval.value / (mean * std::exp(restart) * std::expm1(cycle));
}

double additive_ettr(const EttrPoint& point) {
  if (point.recovery != EttrRecovery::checkpoint) return 1 - point.restart.value * rate(point);
  return planners::expected_ettr(rate(point), point.restart, point.interval, point.stall);
}

double replayed_ettr(const EttrPoint& point, std::uint64_t seed, int failures) {
  static const models::Cluster cluster = one_gpu();
  const traces::Trace trace = failures_of_job(mean_between_failures(point), seed, failures);
  std::vector<Instant> recovered;
  Instant free;
  for (const ir::ClusterEvent& event : trace.events) {
    free = std::max(free, event.time) + to_nanoseconds(point.restart);
    recovered.push_back(free);
  }
  const EttrPolicy policy(point, std::move(recovered));
  models::Job job;
  job.global_batch = 1;
  job.sequence_length = 1;
  const bool checkpoints = point.recovery == EttrRecovery::checkpoint;
  const sim::FixedIterationTimer iterations(checkpoints ? point.interval / kIterations : kShort);
  const sim::FixedTransferTimer transfers(Nanoseconds{});
  return sim::replay({cluster, job, trace, policy, iterations, transfers}, {}).ettr;
}

std::int64_t llama3_interruptions(std::uint64_t seed) {
  config::Diagnostics diagnostics;
  const traces::TraceGenerator generator =
      traces::load_generator("llama3", models::default_library_root(), {}, {}, {}, diagnostics);
  if (!diagnostics.empty()) throw std::runtime_error("the library has no generator 'llama3'");
  constexpr double kDays = 54;
  const traces::Trace trace = traces::generate(generator, traces::equal_nodes(2048, 8, "H100-80GB"),
                                               to_nanoseconds(Seconds{kDays * 86400}), seed);
  return traces::statistics_of(trace).unexpected;
}

MeanEstimate estimate(const std::vector<double>& values) {
  ORRERY_CHECK(values.size() > 1, "a confidence interval of {} values", values.size());
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const boost::math::students_t distribution(count - 1);
  const double t = boost::math::quantile(boost::math::complement(distribution, 0.005));
  return {mean, t * std::sqrt(squares / (count - 1) / count)};
}

}  // namespace orrery::experiments
