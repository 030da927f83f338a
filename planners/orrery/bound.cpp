#include "planners/orrery/bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

/// Rounding of sums must not make a bound exceed a time that equals it.
constexpr double kRounded = 1 - 1e-9;

class BoundOf {
 public:
  BoundOf(const PlannerInput& input, const StageCosts& costs)
      : input_(input), costs_(costs), layers_(count_layers(input.workload)) {
    for (const DeviceId device : input.devices) ++count_[input.cluster.device(device).gpu_type];
    // Groups that share experts may take more of what surrounds them, and others more of them.
    split_ = input.workload.shape.experts > 0 && count_.size() > 1;
    for (const auto& [type, count] : count_) price(type);
  }

  LowerBound run() const {
    LowerBound best{Seconds{kRounded * computation()}, "computation"};
    const Seconds network{kRounded * with_network()};
    if (network > best.seconds) best = {network, "computation and the network between nodes"};
    const Seconds sample{kRounded * one_sample()};
    if (sample > best.seconds) best = {sample, "the way of one sample through all layers"};
    return best;
  }

 private:
  /// Degrees that a plan may have: validate() also takes those with replicated key-value heads.
  std::vector<int> degrees() const {
    std::vector<int> found;
    const int heads = std::max(1, input_.workload.shape.heads);
    const int most = input_.job.allowed.max_tensor_parallel;
    for (int degree = 1; degree <= heads; ++degree) {
      if (heads % degree == 0 && (most == 0 || degree <= most)) found.push_back(degree);
    }
    return found.empty() ? std::vector<int>{1} : found;
  }

  /// Of a type, for one sample: layers, or where they can be apart first what surrounds experts and
  /// then experts of each.
  std::size_t items() const { return as_size(layers_) * (split_ ? 2 : 1); }

  void price(int type) {
    device_seconds_[type].assign(items(), kNever);
    latency_[type].assign(items(), kNever);
    auto modes = input_.job.allowed.recompute;
    if (modes.empty()) modes = {ir::Recompute::none};
    StageShape shape;
    // One expert on each group has the longest products and the fewest weights to read: no other
    // even division of the experts takes less time on a device.
    const int experts = std::max(1, input_.workload.shape.experts);
    const int most = static_cast<int>(
        std::min<std::int64_t>(input_.job.allowed.max_micro_batch_size, input_.job.global_batch));
    shape.expert_parallel = experts;
    for (const int degree : degrees()) {
      shape.tensor_parallel = degree;
      for (shape.samples = 1; shape.samples <= most; ++shape.samples) {
        for (const ir::Recompute mode : modes) {
          shape.recompute = mode;
          take(type, shape, 1);
          if (!split_ || degree > 1) continue;
          // What is fixed weighs least where most is computed, and on a group that has little of a
          // part where it has most of the other.
          for (const int held : {1, experts}) {
            StageShape unlike = shape;
            unlike.experts = held;
            for (const int reaching : {experts * most, experts / held}) {
              unlike.expert_samples = reaching;
              take(type, unlike, static_cast<double>(reaching) * held / experts / unlike.samples);
            }
          }
        }
      }
    }
  }

  /// `load`: models::ExpertShare::load.
  void take(int type, StageShape shape, double load) {
    std::vector<double>& least = device_seconds_[type];
    std::vector<double>& fastest = latency_[type];
    const double each = static_cast<double>(shape.tensor_parallel) / shape.samples;
    const auto offer = [&](std::size_t item, double seconds, double of_samples) {
      least[item] = std::min(least[item], seconds * each / of_samples);
      // A pass is as long as that of the group with the most, which is a sample at least.
      if (shape.samples * of_samples >= kRounded) fastest[item] = std::min(fastest[item], seconds);
    };
    for (shape.first = 0; shape.first < layers_; ++shape.first) {
      const StageCosts::Passes passes = costs_.compute(type, shape);
      const auto i = as_size(shape.first);
      if (!split_) {
        offer(i, passes.both().value, 1);
        continue;
      }
      offer(2 * i, (passes.both() - passes.experts()).value, 1);
      // A layer without experts has none of them.
      offer(2 * i + 1, passes.experts().value, load);
    }
  }

  /// Device-seconds of the batch in units of one layer on each type: no type does a layer, or part
  /// of one, for less than its own unit times the least share over the types.
  double work(std::vector<double>& unit_of_type) const {
    const std::size_t middle = as_size(layers_ / 2);
    for (const auto& [type, seconds] : device_seconds_) {
      if (unit_of_type.size() <= as_size(type)) unit_of_type.resize(as_size(type) + 1, kNever);
      unit_of_type[type] = split_ ? seconds[2 * middle] + seconds[2 * middle + 1] : seconds[middle];
    }
    double units = 0;
    for (std::size_t i = 0; i < items(); ++i) {
      double least = kNever;
      for (const auto& [type, seconds] : device_seconds_) {
        if (unit_of_type[type] < kNever) least = std::min(least, seconds[i] / unit_of_type[type]);
      }
      units += least;
    }
    return units;
  }

  /// Some device steps each parameter, once at least, in no less than its share of a step of all:
  /// what is fixed weighs least there. In units, as work(). Nothing where hosts may step them, or
  /// where a profile has times of whole blocks.
  double least_update(const std::vector<double>& unit_of_type) const {
    if (input_.job.allowed.max_optimizer_offload > 0) return 0;
    for (const ir::BlockTime& entry : input_.profile.block_times) {
      if (entry.pass == ir::Pass::optimizer) return 0;
    }
    StageShape whole;
    whole.layers = layers_;
    double least = kNever;
    for (const auto& [type, count] : count_) {
      least = std::min(least, costs_.optimizer(type, whole).value / unit_of_type[type]);
    }
    return std::isfinite(least) ? least : 0;
  }

  double computation() const {
    std::vector<double> unit;
    const double passes = work(unit) * static_cast<double>(input_.job.global_batch);
    const double units = passes + least_update(unit);
    double rate = 0;
    for (const auto& [type, count] : count_) rate += count / unit[type];
    return rate > 0 && std::isfinite(units) ? units / rate : 0;
  }

  double one_sample() const {
    double sum = 0;
    for (std::size_t i = 0; i < items(); ++i) {
      double least = kNever;
      for (const auto& [type, seconds] : latency_) least = std::min(least, seconds[i]);
      sum += least;
    }
    return sum;
  }

  /// Bytes per second that leave a node: over the NICs of its devices.
  double bandwidth_out(NodeId node) const {
    std::map<LinkId, double> ports;
    for (const LinkId link : input_.topology.links_of(node)) {
      ports[link] = input_.topology.links()[link].bandwidth.value;
    }
    // What a route out of the node crosses on the node itself, its narrowest link, each NIC once.
    std::map<LinkId, double> nics;
    std::vector<LinkId> route;
    for (const DeviceId device : input_.devices) {
      if (input_.cluster.device(device).node != node) continue;
      DeviceId other;
      for (const DeviceId far : input_.devices) {
        if (input_.cluster.device(far).node != node) {
          other = far;
          break;
        }
      }
      if (!other.valid()) return kNever;
      route.clear();
      input_.topology.route(device, other, route);
      LinkId last;
      for (const LinkId link : route) {
        if (ports.contains(link)) last = link;
      }
      if (!last.valid()) return kNever;
      nics[last] = ports.at(last);
    }
    double sum = 0;
    for (const auto& [link, bandwidth] : nics) sum += bandwidth;
    return sum;
  }

  /// Of an activation, what a sample sends at least out of a node that touches it and holds no
  /// whole replica: all of it, or where only an expert is missing what goes there, forward and
  /// backward.
  double least_crossing() const {
    const ir::ModelShape& shape = input_.workload.shape;
    if (shape.experts == 0) return 1;
    const auto& hidden = input_.job.hidden_collectives;
    if (std::find(hidden.begin(), hidden.end(), ir::Purpose::expert_parallel) != hidden.end()) {
      return 0;
    }
    return std::min(1.0, 2 * shape.top_k * shape.capacity_factor / shape.experts);
  }

  /// By bisection: the work that all nodes can do in a time grows with the time.
  double with_network() const {
    std::map<NodeId, std::vector<int>> nodes;
    for (const DeviceId device : input_.devices) {
      const models::Device& of = input_.cluster.device(device);
      nodes[of.node].push_back(of.gpu_type);
    }
    if (nodes.size() < 2) return 0;
    std::vector<double> unit;
    const double units = work(unit);
    const double wanted = units * static_cast<double>(input_.job.global_batch);
    struct Node {
      double rate = 0;      // Units per second.
      double out = 0;       // Bytes per second.
      double crossing = 0;  // Of activations.
      double replica = 0;   // Seconds that a whole replica's gradients take.
    };
    const double parameters = static_cast<double>(models::parameters(input_.workload));
    const auto& zero = input_.job.allowed.zero_stages;
    const bool gathers_inside = std::find(zero.begin(), zero.end(), 3) != zero.end();
    const models::StateBytes& bytes = input_.job.state_bytes;
    // Of an all-reduce each of two members sends all gradients; scattered and gathered, half of the
    // gradients and half of the weights.
    double out_bytes = std::min(bytes.gradient, (bytes.gradient + bytes.weight) / 2);
    if (gathers_inside) out_bytes = bytes.gradient / 2;
    double activation = kNever;
    for (int i = 0; i < layers_; ++i) activation = std::min(activation, costs_.activation(i).value);
    activation *= least_crossing();
    std::vector<Node> all;
    for (const auto& [id, types] : nodes) {
      Node node;
      for (const int type : types) node.rate += 1 / unit[type];
      node.out = bandwidth_out(id);
      // Exchanges of tokens share no link with those of other stages where ranks are collapsed:
      // each device has all.
      const bool experts = input_.workload.shape.experts > 0;
      node.crossing = node.out * (experts ? static_cast<double>(types.size()) : 1);
      node.replica = node.out == kNever ? 0 : parameters * out_bytes / node.out;
      all.push_back(node);
    }
    double rate = 0;
    for (const Node& node : all) rate += node.rate;
    if (!(rate > 0) || !std::isfinite(wanted)) return 0;
    const auto done_in = [&](double seconds) {
      double sum = 0, one_free = 0;
      for (const Node& node : all) {
        const double whole = node.rate * seconds;
        double possible = whole;
        if (seconds < node.replica && activation > 0) {
          // A group over nodes pays its all-reduces apart: at most a layer for each device.
          const double per_crossing = units + static_cast<double>(input_.devices.size());
          possible = std::min(whole, per_crossing * seconds * node.crossing / activation);
        }
        sum += possible;
        one_free = std::max(one_free, whole - possible);
      }
      return sum + one_free;
    };
    double low = 0, high = 1;
    while (done_in(high) < wanted) high *= 2;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (done_in(middle) < wanted ? low : high) = middle;
    }
    return low;
  }

  const PlannerInput& input_;
  const StageCosts& costs_;
  int layers_;
  std::map<int, int> count_;
  bool split_ = false;
  std::map<int, std::vector<double>> device_seconds_;  ///< By type and item, for a sample.
  std::map<int, std::vector<double>> latency_;         ///< The same of a pass.
};

}  // namespace

LowerBound lower_bound(const PlannerInput& input, const StageCosts& costs) {
  if (input.devices.empty()) return {Seconds{}, "no device"};
  return BoundOf(input, costs).run();
}

}  // namespace orrery::planners
