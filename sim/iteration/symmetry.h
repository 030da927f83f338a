/// The classes of pipelines, flows, links and collectives of a plan, found by refining colors: in
/// each round the color of each is mixed with those of the others that it meets, until no class
/// splits any more [Cardon, Crochemore 1982; color refinement]. Private to sim/iteration.
#pragma once
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/cost/collective.h"
#include "models/cost/host_step.h"
#include "models/cost/path_function.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/lower.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"
#include "sim/iteration/folding.h"
#include "sim/iteration/slow_links.h"

namespace orrery::sim {

using Color = std::uint64_t;

/// Finalizer of MurmurHash3 [Appleby 2011, public domain].
inline Color scramble(Color value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}
inline Color mix(Color color, Color value) {
  return scramble((color << 7 | color >> 57) + scramble(value + 0x9e3779b97f4a7c15ULL));
}
/// mix() of colors that are mixed already, in half the time.
inline Color blend(Color color, Color value) {
  return scramble((color << 7 | color >> 57) + value * 0x9e3779b97f4a7c15ULL);
}
inline Color mix(Color color, double value) { return mix(color, std::bit_cast<Color>(value)); }
inline Color mix(Color color, int value) { return mix(color, static_cast<Color>(value)); }

/// The number of different ones.
std::size_t distinct(const std::vector<Color>& colors);

/// Where a device is in its pipeline.
struct Position {
  std::int32_t pipeline = -1;
  std::int32_t position = -1;
  bool operator==(const Position&) const = default;
};

/// A plan's pipelines as lists of devices.
struct Members {
  Members(const ir::Plan& plan, const models::Cluster& cluster);
  DeviceId at(int pipeline, int position) const { return devices[pipeline][position]; }

  std::vector<std::vector<DeviceId>> devices;  ///< By pipeline.
  IdVector<DeviceId, Position> of_device;
  /// The position of the first device of the same pipeline on the same node.
  IdVector<DeviceId, std::int32_t> node_label;
};

/// What a pipeline computes, on which GPUs; equal for pipelines that differ at most in where they
/// are and whom they meet. `hosts`: of the plan's devices; null where nothing lives in host memory.
Color color_of(const ir::Pipeline& pipeline, const models::Cluster& cluster, const Members& members,
               const IdVector<DeviceId, double>& slowdown, const models::HostShares* hosts);

/// The colors of pipelines, flows, links and collectives of one partly built program.
class Symmetry {
 public:
  /// Which of the families of flows that cross a link are held to do so at the same time: all of
  /// them, or those of which it is known.
  enum class Meetings { all, found };
  /// Two families meet on a link: 0 are the flows inside pipelines, 1 + n those of the n-th step of
  /// synchronization.
  struct Meeting {
    LinkId link;
    std::int32_t a = 0;
    std::int32_t b = 0;
  };

  struct Input {
    const models::Topology& topology;
    const models::PathFunction& path;
    const LinkFactors& factors;
    const Members& members;
    const ir::Program& program;
    const models::PartialProgram& partial;
    InnerMode mode;
    bool links;   ///< Bytes on links are asked for.
    bool slices;  ///< Flows of one transfer may be of one class.
    /// Pipelines whose flows are held to meet every step of synchronization from the first guess
    /// on.
    const std::set<int>& meeting;
  };

  /// `colors` are those of pipelines, as color_of() or an earlier refine() gave them; one of each
  /// is built. Keeps the references of `input`. Where it finds lonely pipelines nothing else works.
  Symmetry(const Input& input, const std::vector<Color>& colors)
      : in_(input), topology_(input.topology), colors_(colors) {
    find_classes();
    for (LocalClass& one : classes_) find_patterns(one);
    if (!lonely.empty()) return;
    add_local_flows();
    add_collectives();
    leave_out_wide_links();
    find_steps();
  }

  /// Pipelines that must be built because they meet others in ways that have no classes.
  std::set<int> lonely;

  /// Whether a built pipeline has a flow between these two of its devices.
  bool sends(int pipeline, DeviceId source, DeviceId destination) const;

  /// Refines the colors until no class splits, and returns those of pipelines; or, once these have
  /// more than `most` colors, as far as it has come.
  const std::vector<Color>& refine(Meetings meetings, const std::vector<Meeting>& known,
                                   std::size_t most);

  /// The classes as a Folding, after refine(); none where a pipeline is in two collectives of one
  /// class: it is lonely then. `crossings`: with Folding::crossings.
  std::unique_ptr<Folding> fold(bool crossings);

  /// What a pass sends to another stage, with the steps that wait for the same pass: both start
  /// when it ends, as gradients do that overlap with the backward pass.
  std::vector<Meeting> likely_meetings() const;

  /// What these flows met on links beyond what refine() was told; if anything, together with the
  /// steps that flows inside pipelines missed by less than `nearness` times the run's duration.
  std::vector<Meeting> find_meetings(const std::vector<FlowInterval>& flows, double nearness);

 private:
  struct LocalClass {
    int built = 0;
    std::vector<int> members;
    std::vector<std::pair<DeviceId, DeviceId>> flows;  ///< Of the built one.
    std::vector<std::pair<DeviceId, DeviceId>> paths;  ///< Whose times it takes without flows.
    /// The same of all-to-alls, which depend on the links that their groups share.
    std::vector<const ir::InnerCollective*> exchanges;
    std::vector<Color> uses;     ///< By flow: in which transfers and collectives, with what bytes.
    std::vector<Color> colors;   ///< By flow.
    std::size_t first_flow = 0;  ///< Of its first member; members follow one another.
    std::vector<std::int32_t> routes;  ///< By flow, once folded.
  };
  struct GlobalCollective {
    std::int32_t index = 0;  ///< In the program.
    std::int32_t step = 0;
    std::size_t first_flow = 0;  ///< Among global flows.
    std::size_t end_flow = 0;
    bool repeats = false;     ///< An earlier one has the same flows.
    std::int32_t dense = -1;  ///< Class, once folded.
  };

  bool singleton(int pipeline) const { return classes_[class_of_[pipeline]].members.size() == 1; }

  void find_classes() {
    std::unordered_map<Color, std::size_t> known;
    for (std::size_t p = 0; p < colors_.size(); ++p) {
      const auto [at, fresh] = known.try_emplace(colors_[p], classes_.size());
      if (fresh) classes_.emplace_back().built = static_cast<int>(p);
      classes_[at->second].members.push_back(static_cast<int>(p));
      class_of_.push_back(at->second);
    }
  }

  /// Whether a flow or path between two devices stays in its pipeline; else both are built.
  bool local(DeviceId a, DeviceId b) {
    const int p = in_.members.of_device[a].pipeline;
    const int q = in_.members.of_device[b].pipeline;
    if (p == q) return true;
    for (const int end : {p, q}) {
      if (!singleton(end)) lonely.insert(end);
    }
    return false;
  }

  bool within_rank(std::span<const DeviceId> devices) {
    if (rank_of_.empty()) {
      rank_of_.assign(in_.members.of_device.size(), {});
      for (std::size_t r = 0; r < in_.program.ranks.size(); ++r) {
        for (const DeviceId device : in_.program.ranks[r].devices) {
          rank_of_[device] = {static_cast<std::int32_t>(r)};
        }
      }
    }
    return std::all_of(devices.begin(), devices.end(), [&](DeviceId device) {
      return rank_of_[device] == rank_of_[devices.front()];
    });
  }

  void find_patterns(LocalClass& one);
  void add_paths(std::span<const DeviceId> group, ir::CollectiveKind kind, LocalClass& one);
  void check_shared_paths(std::span<const DeviceId> group, const LocalClass& one);
  void add_exchange(const ir::InnerCollective& inner, LocalClass& one) const;
  /// What a flow of a collective carries.
  struct Load {
    Bytes bytes;
    Seconds tail;  ///< Latencies after the bytes.
  };
  void add_local_flows();
  void add_collectives();
  void leave_out_wide_links();
  void find_steps();
  std::uint32_t add_route(DeviceId source, DeviceId destination);
  void add_global_flow(const models::FlowEdge& edge);
  void repeat_global_flows(std::size_t first, std::size_t end);
  Color path_color(DeviceId source, DeviceId destination) const;
  void paint_local_flows();
  void place_on_links(Meetings meetings, const std::vector<Meeting>& known);
  std::int32_t open(std::int32_t& place, LinkId link);
  std::int32_t find_place(LinkId link, std::int32_t family) const;
  std::int32_t root(std::int32_t place) const;
  bool unite(std::int32_t a, std::int32_t b);
  void paint_fixed();
  void paint_messages();
  void paint_links();
  void paint_rest();
  /// By the devices that a pass sends from and to: steps that wait for the same pass.
  using StepsBeside = std::map<std::pair<DeviceId, DeviceId>, std::set<std::int32_t>>;
  StepsBeside steps_beside_sends() const;
  void find_doubles(const std::vector<int>& uses);
  void add_meetings(const std::vector<FlowInterval>& flows, Seconds apart,
                    std::vector<Meeting>& found);

  template <class F>
  void for_each_local(F&& take) const {  // take(class, member, number of the flow, flow)
    for (const LocalClass& one : classes_) {
      std::size_t flow = one.first_flow;
      for (const int member : one.members) {
        for (std::size_t j = 0; j < one.flows.size(); ++j) take(one, member, j, flow++);
      }
    }
  }
  template <class F>
  void for_each_step(LinkId link, F&& take) const {  // take(step, place)
    for (std::uint32_t i = link_begin_[link.index()]; i < link_begin_[link.index() + 1]; ++i) {
      take(link_steps_[i], all_meet_ ? local_place_[link.index()] : step_place_[i]);
    }
  }
  const Load& load(std::size_t global_flow) const { return loads_[load_of_[global_flow]]; }
  std::span<const LinkId> links_of(std::size_t flow) const {
    return {crossed_.data() + route_begin_[flow], route_begin_[flow + 1] - route_begin_[flow]};
  }
  std::span<const std::int32_t> places_of(std::size_t flow) const {
    return {places_.data() + route_begin_[flow], route_begin_[flow + 1] - route_begin_[flow]};
  }

  const Input in_;
  const models::Topology& topology_;
  std::vector<Color> colors_;
  std::vector<LocalClass> classes_;
  std::vector<std::size_t> class_of_;  ///< By pipeline.
  IdVector<DeviceId, RankId> rank_of_;

  // Flows: those of classes, member by member, then those of collectives.
  std::vector<std::uint32_t> route_begin_;
  std::vector<LinkId> crossed_;
  /// The same with links that are too wide to matter, if bytes on links are asked for.
  std::vector<std::uint32_t> whole_route_begin_;
  std::vector<LinkId> whole_crossed_;
  std::size_t local_flows_ = 0;
  std::vector<Color> local_fixed_;  ///< By pipeline: latencies of its flows and paths.
  std::vector<GlobalCollective> collectives_;
  std::vector<Color> collective_fixed_;
  std::vector<Load> loads_;             ///< Those of repeated collectives share one.
  std::vector<std::uint32_t> load_of_;  ///< By global flow.

  // A place is a link for the families that meet there.
  std::vector<std::int32_t> places_;  ///< Parallel to crossed_; roots.
  mutable std::vector<std::int32_t> parents_;
  std::vector<LinkId> link_of_place_;
  std::vector<std::int32_t> local_place_;  ///< By link.
  // Steps of synchronization that cross a link, ascending, and where.
  std::vector<std::uint32_t> link_begin_;
  std::vector<std::int32_t> link_steps_;
  std::vector<std::int32_t> step_place_;  ///< Parallel to link_steps_.
  std::vector<std::uint32_t> slots_;  ///< Into link_steps_, by crossing of flows of collectives.
  bool all_meet_ = true;

  std::vector<std::int32_t> step_of_route_;  ///< -1: of flows inside pipelines.
  std::vector<Color> pipeline_colors_, link_colors_, flow_colors_, collective_colors_;
  std::vector<Color> capacity_;  ///< By place, as a color.
  std::vector<Color> crossing_;  ///< By place, of the current round.
};

}  // namespace orrery::sim
