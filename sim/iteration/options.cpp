#include "sim/iteration/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "models/config/units.h"
#include "models/config/visitor.h"

namespace orrery::sim {

std::vector<std::pair<InnerMode, const char*>> enum_names(InnerMode) {
  return {{InnerMode::automatic, "automatic"},
          {InnerMode::closed_form, "closed_form"},
          {InnerMode::aggregated, "aggregated"},
          {InnerMode::per_block, "per_block"}};
}

std::vector<std::pair<RingMode, const char*>> enum_names(RingMode) {
  return {{RingMode::aggregated, "aggregated"}, {RingMode::stepwise, "stepwise"}};
}

std::vector<std::pair<FoldMode, const char*>> enum_names(FoldMode) {
  return {{FoldMode::automatic, "automatic"}, {FoldMode::slices, "slices"}, {FoldMode::off, "off"}};
}

namespace {

constexpr double kLeastSlowdown = 1e-6;  ///< Far below anything real; bandwidths stay finite.

/// "NAME=FACTOR".
bool split_factor(const std::string& text, const char* example, std::string& name, double& factor,
                  std::string& error) {
  const std::size_t equals = text.rfind('=');
  config::TextError wrong;
  const auto value = equals == std::string::npos || equals == 0
                         ? std::nullopt
                         : config::parse_number(text.substr(equals + 1), wrong);
  if (!value || !(*value > 0)) {
    error = fmt::format("'{}' is not {} with a positive factor", text, example);
    return false;
  }
  name = text.substr(0, equals);
  factor = *value;
  return true;
}

}  // namespace

bool from_scalar(const std::string& text, Straggler& out, std::string& error) {
  std::string device;
  if (!split_factor(text, "DEVICE=FACTOR, for example 3=1.5,", device, out.slowdown, error)) {
    return false;
  }
  config::TextError wrong;
  const auto id = config::parse_integer(device, 0, std::numeric_limits<std::int32_t>::max(), wrong);
  if (!id) {
    error = fmt::format("'{}' is no device", device);
    return false;
  }
  out.device = {static_cast<std::int32_t>(*id)};
  return true;
}

bool from_scalar(const std::string& text, SlowLink& out, std::string& error) {
  return split_factor(text, "LINK=FACTOR, for example a800/nic0/up=2,", out.link, out.slowdown,
                      error);
}

void describe(config::Visitor& v, Straggler& straggler) {
  v.title("Straggler");
  v.doc("A device whose compute ops take longer.");
  v.required("device", straggler.device, "id of the device");
  v.required("slowdown", straggler.slowdown, "factor on its compute times");
  v.positive("slowdown", straggler.slowdown);
}

void describe(config::Visitor& v, SlowLink& link) {
  v.title("Slow link");
  v.doc("A link with less bandwidth than the cluster file says.");
  v.required("link", link.link, "name of the one-way link, as in link tables");
  v.required("slowdown", link.slowdown, "its bandwidth is divided by this");
  v.positive("slowdown", link.slowdown);
}

void describe(config::Visitor& v, IterationOptions& options) {
  v.title("Iteration");
  v.doc("How one iteration is simulated.");
  v.optional("jitter", options.jitter, "relative standard deviation of compute times");
  v.optional("step_jitter", options.step_jitter,
             "relative standard deviation of a device's speed from step to step");
  v.optional("link_jitter", options.link_jitter,
             "relative standard deviation of what transfers between two devices take");
  v.optional("seed", options.seed, "seed of the jitter");
  v.optional("stragglers", options.stragglers, "devices that compute more slowly");
  v.optional("slow_links", options.slow_links, "links with less bandwidth");
  v.optional("inner", options.inner, "collectives inside forward and backward passes");
  v.optional("ring", options.ring, "ring collectives between ranks");
  v.optional("fold", options.fold,
             "automatic: simulate pipelines that do the same at the same time once; slices: also "
             "the parts of a transfer that go side by side between two tensor-parallel groups, as "
             "replays do, which can move a time by rounding; off: simulate everything");
  v.optional("record_spans", options.record_spans, "keep a span for each op");
  v.optional("record_memory", options.record_memory, "keep the memory timeline of each rank");
  v.optional("record_links", options.record_links, "keep the bytes that crossed each link");
  v.between("jitter", options.jitter, 0.0, 1.0);
  v.between("step_jitter", options.step_jitter, 0.0, 1.0);
  v.between("link_jitter", options.link_jitter, 0.0, 1.0);
}

std::vector<std::string> find_problems(const IterationOptions& options,
                                       const models::Cluster& cluster,
                                       const models::Topology& topology) {
  std::vector<std::string> problems;
  std::map<std::string, double> slowdowns;
  const auto check_factor = [&](double factor, const std::string& what) {
    double& slowdown = slowdowns.try_emplace(what, 1).first->second *= factor;
    if (!std::isfinite(slowdown)) {
      problems.push_back(fmt::format("slowdown {} of {}", slowdown, what));
    } else if (!(std::min(factor, slowdown) >= kLeastSlowdown)) {
      problems.push_back(
          fmt::format("slowdown {} of {}, must be at least {}", slowdown, what, kLeastSlowdown));
    }
  };
  for (const Straggler& straggler : options.stragglers) {
    if (!straggler.device.valid() || straggler.device.value >= cluster.size()) {
      problems.push_back(fmt::format("no device {}: cluster '{}' has {}", straggler.device.value,
                                     cluster.name, cluster.size()));
    }
    check_factor(straggler.slowdown, fmt::format("device {}", straggler.device.value));
  }
  for (const SlowLink& slow : options.slow_links) {
    if (!topology.find(slow.link).valid()) {
      problems.push_back(fmt::format("no link '{}' in cluster '{}'", slow.link, cluster.name));
    }
    check_factor(slow.slowdown, fmt::format("link '{}'", slow.link));
  }
  for (const auto& [name, value] : {std::pair{"jitter", options.jitter},
                                    {"step_jitter", options.step_jitter},
                                    {"link_jitter", options.link_jitter}}) {
    if (!(value >= 0) || value > 1) problems.push_back(fmt::format("{} {}", name, value));
  }
  return problems;
}

}  // namespace orrery::sim
