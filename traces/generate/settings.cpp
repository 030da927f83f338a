#include "traces/generate/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "models/config/document.h"
#include "models/config/visitor.h"
#include "traces/trace.h"

namespace orrery::traces {

namespace {
constexpr std::size_t kHours = 24;
/// Shapes below make gaps that hardly have a mean in double precision.
constexpr double kLeastShape = 0.2;
constexpr double kMostShape = 20;
constexpr double kMostSigma = 5;
/// Ranges that no measured number comes near, so that times fit into nanoseconds and rates are
/// numbers. How many events all settings together make, find_problems() limits.
constexpr double kMostCount = 1e9;
constexpr double kMostFactor = 1e6;
constexpr double kMostBurst = 1e6;
constexpr double kMostLeavesPerHour = 3600;
constexpr DollarsPerSecond kMostPrice{1e3};
constexpr Seconds kLeastTime{1e-3};
constexpr Seconds kLeastStep{60};
constexpr Seconds kLongest = to_seconds(Nanoseconds{kLongestTime});
constexpr Seconds kLongestNotice{365 * kDay};
}  // namespace

std::vector<std::pair<FailureScope, const char*>> enum_names(FailureScope) {
  return {{FailureScope::gpu, "gpu"},
          {FailureScope::node, "node"},
          {FailureScope::leaf, "leaf"},
          {FailureScope::job, "job"}};
}

std::vector<std::pair<DurationShape, const char*>> enum_names(DurationShape) {
  return {{DurationShape::fixed, "fixed"},
          {DurationShape::exponential, "exponential"},
          {DurationShape::lognormal, "lognormal"}};
}

void describe(config::Visitor& v, RandomDuration& duration) {
  v.title("Random duration");
  v.required("mean", duration.mean, "mean of the duration");
  v.optional("distribution", duration.distribution, "fixed, exponential or lognormal");
  v.optional("sigma", duration.sigma, "lognormal: standard deviation of the logarithm");
  v.between("mean", duration.mean, kLeastTime, kLongest);
  v.between("sigma", duration.sigma, 0.0, kMostSigma);
}

void describe(config::Visitor& v, FailureCause& cause) {
  v.title("Cause of failures");
  v.required("cause", cause.cause, "its name in the trace");
  v.optional("category", cause.category, "of the published table");
  v.required("count", cause.count, "failures over the period on the GPUs of the table");
  v.required("scope", cause.scope, "what goes down");
  v.optional("nodes", cause.nodes, "leaf: most nodes that go down together");
  v.optional("repair", cause.repair, "until the hardware is back; not for scope job");
  v.optional("detection", cause.detection, "until the job notices; none: the policy's default");
  v.optional("source", cause.source, "where the numbers come from");
  v.between("count", cause.count, 0.0, kMostCount);
  v.between("nodes", cause.nodes, 1, 1 << 20);
  if (cause.detection) v.between("detection", *cause.detection, Seconds{0}, kLongestNotice);
  if (v.reading() && cause.cause.empty()) v.problem("cause", "a cause without a name");
  if (v.reading() && v.good() && cause.repair.has_value() == (cause.scope == FailureScope::job)) {
    v.problem(
        "scope",
        cause.repair ? "the job is restarted, not repaired" : "hardware needs a time of repair",
        cause.repair ? "leave `repair` out" : "for example repair: {mean: 4 h}");
  }
}

void describe(config::Visitor& v, Maintenance& maintenance) {
  v.title("Planned maintenance");
  v.optional("count", maintenance.count, "nodes over the period on the GPUs of the table");
  v.optional("notice", maintenance.notice, "announced so long before");
  v.optional("duration", maintenance.duration, "until the node is back");
  v.optional("source", maintenance.source, "where the numbers come from");
  v.between("count", maintenance.count, 0.0, kMostCount);
  v.between("notice", maintenance.notice, Seconds{0}, kLongestNotice);
}

void describe(config::Visitor& v, LemonNodes& lemons) {
  v.title("Lemon nodes");
  v.optional("share", lemons.share, "of nodes");
  v.optional("rate", lemons.rate, "failures of a lemon relative to any other node");
  v.between("share", lemons.share, 0.0, 1.0);
  v.between("rate", lemons.rate, 1 / kMostFactor, kMostFactor);
}

void describe(config::Visitor& v, SlowDevices& slow) {
  v.title("Slow devices");
  v.optional("per_1000_gpu_days", slow.per_1000_gpu_days, "how often a device becomes slow");
  v.optional("factor", slow.factor, "of its speed");
  v.optional("duration", slow.duration, "until it is back at full speed");
  v.optional("detection", slow.detection, "until the job notices; none: the policy's default");
  v.optional("source", slow.source, "where the numbers come from");
  v.between("per_1000_gpu_days", slow.per_1000_gpu_days, 0.0, kMostCount);
  v.between("factor", slow.factor, 1e-3, 1.0);
  if (slow.detection) v.between("detection", *slow.detection, Seconds{0}, kLongestNotice);
}

void describe(config::Visitor& v, DegradedLinks& links) {
  v.title("Degraded links");
  v.optional("links", links.links, "names of one-way links, as in link tables");
  v.optional("per_link_day", links.per_link_day, "how often each of them degrades");
  v.optional("factor", links.factor, "of its bandwidth");
  v.optional("duration", links.duration, "until it is back at full bandwidth");
  v.optional("source", links.source, "where the numbers come from");
  v.between("per_link_day", links.per_link_day, 0.0, kMostCount);
  v.between("factor", links.factor, 1e-3, 1.0);
}

void describe(config::Visitor& v, DailyVariation& daily) {
  v.title("Throughput over the day");
  v.optional("depth", daily.depth, "share of speed lost at the warmest hour");
  v.optional("warmest_hour", daily.warmest_hour, "the trace starts at midnight");
  v.optional("step", daily.step, "how often the speed is set");
  v.optional("source", daily.source, "where the numbers come from");
  v.between("depth", daily.depth, 0.0, 0.9);
  v.between("warmest_hour", daily.warmest_hour, 0.0, 24.0);
  v.between("step", daily.step, kLeastStep, kLongest);
}

void describe(config::Visitor& v, FailureSettings& failures) {
  v.title("Failures");
  v.doc("Independent processes, one for each root cause.");
  v.optional("period", failures.period, "over which the counts were observed");
  v.optional("gpus", failures.gpus, "on which the counts were observed");
  v.optional("rate", failures.rate, "multiplies all rates");
  v.optional("shape", failures.shape, "of Weibull gaps between failures of a cause; 1: Poisson");
  v.optional("conditioned", failures.conditioned, "exactly the expected counts, at uniform times");
  v.optional("causes", failures.causes, "the table");
  v.optional("lemons", failures.lemons, "nodes that fail more often");
  v.optional("maintenance", failures.maintenance, "announced work on nodes");
  v.optional("slow", failures.slow, "devices that run slowly for a while");
  v.optional("links", failures.links, "links that lose bandwidth for a while");
  v.optional("daily", failures.daily, "throughput of the whole job over the day");
  v.between("period", failures.period, kLeastTime, kLongest);
  v.between("gpus", failures.gpus, std::int64_t{1}, static_cast<std::int64_t>(kMostCount));
  v.between("rate", failures.rate, 0.0, kMostFailureRate);
  v.between("shape", failures.shape, kLeastShape, kMostShape);
  if (!v.reading()) return;
  std::set<std::string> names;
  for (const FailureCause& cause : failures.causes) {
    if (!names.insert(cause.cause).second) {
      v.problem("causes", fmt::format("cause '{}' twice", cause.cause));
    }
  }
}

void describe(config::Visitor& v, SpotType& spot) {
  v.title("Spot nodes");
  v.required("gpu_type", spot.gpu_type, "\"*\": each type that no other entry names");
  v.required("leaves_per_hour", spot.leaves_per_hour, "hazard of a node that is there");
  v.optional("by_hour", spot.by_hour, "24 factors on the hazard from midnight on");
  v.required("away", spot.away, "mean time until a node is back");
  v.optional("burst", spot.burst, "mean number of nodes that leave together");
  v.optional("join_burst", spot.join_burst, "mean number of nodes that come together");
  v.optional("notice", spot.notice, "a node is warned so long before it leaves");
  v.optional("start", spot.start, "share of nodes there at time 0; none: the steady state");
  v.optional("price", spot.price, "mean, per GPU; none: the trace names no prices");
  v.optional("price_sigma", spot.price_sigma,
             "standard deviation of the logarithm in the long run; 0: constant");
  v.optional("price_reversion", spot.price_reversion, "time constant towards the mean");
  v.optional("price_step", spot.price_step, "how often the price is set");
  v.optional("source", spot.source, "where the numbers come from");
  v.between("leaves_per_hour", spot.leaves_per_hour, 0.0, kMostLeavesPerHour);
  v.between("away", spot.away, kLeastTime, kLongest);
  v.between("burst", spot.burst, 1.0, kMostBurst);
  v.between("join_burst", spot.join_burst, 1.0, kMostBurst);
  v.between("notice", spot.notice, Seconds{0}, kLongestNotice);
  v.between("price_sigma", spot.price_sigma, 0.0, kMostSigma);
  v.between("price_reversion", spot.price_reversion, kLeastTime, kLongest);
  v.between("price_step", spot.price_step, kLeastStep, kLongest);
  if (spot.start) v.between("start", *spot.start, 0.0, 1.0);
  if (spot.price) v.between("price", *spot.price, DollarsPerSecond{0}, kMostPrice);
  if (!v.reading()) return;
  if (!spot.by_hour.empty() && spot.by_hour.size() != kHours) {
    v.problem("by_hour", fmt::format("{} factors instead of 24", spot.by_hour.size()));
  }
  for (const double factor : spot.by_hour) {
    if (factor >= 0 && factor <= kMostFactor) continue;
    v.problem("by_hour", fmt::format("factor {} is not from 0 to {}", factor, kMostFactor));
  }
}

void describe(config::Visitor& v, TraceGenerator& generator) {
  v.schema("orrery/trace_generator", 1);
  v.title("Trace generator");
  v.doc("What happens to a cluster: failures and spot nodes that come and go.");
  v.required("name", generator.name, "");
  v.optional("source", generator.source, "what is published, what is assumed");
  v.optional("failures", generator.failures, "hardware and software that fails");
  v.optional("spot", generator.spot, "nodes that come and go, by GPU type");
  if (!v.reading()) return;
  std::set<std::string> types;
  for (const SpotType& spot : generator.spot) {
    if (!types.insert(spot.gpu_type).second) {
      v.problem("spot", fmt::format("GPU type '{}' twice", spot.gpu_type));
    }
  }
}

TraceGenerator load_generator(const std::string& name, const std::string& root,
                              const std::vector<std::string>& changes, config::Position asked_at,
                              config::Position changes_at, config::Diagnostics& diagnostics) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(root) / "traces";
  fs::path path = name;
  if (!fs::is_regular_file(path, error)) path = folder / (name + ".yaml");
  if (!fs::is_regular_file(path, error)) {
    std::vector<std::string> known;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      known.push_back(entry.path().stem().string());
    }
    std::sort(known.begin(), known.end());
    diagnostics.add(std::move(asked_at), fmt::format("no trace generator '{}'", name),
                    config::suggest(name, known, "generators"));
    return {};
  }
  const std::size_t before = diagnostics.problems().size();
  config::Value tree = config::load_value(path.string(), diagnostics);
  for (const std::string& change : changes) {
    const std::size_t equals = change.find('=');
    if (equals == 0 || equals == std::string::npos) {
      diagnostics.add(changes_at, fmt::format("'{}' is not KEY=VALUE", change),
                      "for example failures.conditioned=true");
      continue;
    }
    const std::string text = change.substr(equals + 1);
    const bool nested = text.starts_with('[') || text.starts_with('{');
    tree = config::merge(std::move(tree), change.substr(0, equals),
                         nested ? config::load_value_text(text, changes_at.file, diagnostics)
                                : config::Value::scalar(text, changes_at),
                         diagnostics);
  }
  TraceGenerator generator;
  if (diagnostics.problems().size() == before) {
    config::describe_value(tree, generator, diagnostics);
  }
  return generator;
}

}  // namespace orrery::traces
