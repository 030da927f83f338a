#include "sim/iteration/symmetry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/op_traits.h"
#include "sim/iteration/inner.h"

namespace orrery::sim {
namespace {

/// Overlaps shorter than this are rounding: flows that follow each other.
constexpr Seconds kTouch{1e-12};

Color packed(std::int32_t a, std::int32_t b) {
  return static_cast<Color>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b);
}

/// Sums of bandwidths that differ by less than this share are equal.
constexpr double kRounding = 1e-12;

}  // namespace

std::size_t distinct(const std::vector<Color>& colors) {
  std::vector<Color> slots(1024, 0);  // Grows with what is distinct.
  std::size_t count = 0;
  const auto slot_of = [&](Color color) -> Color& {
    std::size_t at = color & (slots.size() - 1);
    while (slots[at] != 0 && slots[at] != color) at = (at + 1) & (slots.size() - 1);
    return slots[at];
  };
  Color before = 0;  // Equal ones often follow each other.
  for (const Color color : colors) {
    if (std::exchange(before, color) == color) continue;
    Color& slot = slot_of(color);
    if (slot == color) continue;
    slot = color;
    if (2 * ++count < slots.size()) continue;
    const std::vector<Color> full = std::exchange(slots, std::vector<Color>(4 * slots.size(), 0));
    for (const Color known : full) {
      if (known != 0) slot_of(known) = known;
    }
  }
  return count;
}

Members::Members(const ir::Plan& plan, const models::Cluster& cluster)
    : of_device(cluster.devices.size()), node_label(cluster.devices.size(), -1) {
  std::vector<std::pair<int, int>> first_on_node(cluster.nodes.size(), {-1, -1});
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const auto pipeline = static_cast<std::int32_t>(p);
    std::vector<DeviceId>& own = devices.emplace_back();
    for (const ir::Stage& stage : plan.pipelines[p].stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (const ir::Group& group : segment.groups) {
          for (const DeviceId device : group.devices) {
            Position& at = of_device[device];
            if (at.pipeline == pipeline) continue;
            at = {pipeline, static_cast<std::int32_t>(own.size())};
            auto& [seen_by, label] = first_on_node[cluster.device(device).node.index()];
            if (seen_by != pipeline) label = at.position;
            seen_by = pipeline;
            node_label[device] = label;
            own.push_back(device);
          }
        }
      }
    }
  }
}

Color color_of(const ir::Pipeline& pipeline, const models::Cluster& cluster, const Members& members,
               const IdVector<DeviceId, double>& slowdown, const models::HostShares* hosts) {
  Color color = 1;
  const auto add = [&](auto value) { color = mix(color, static_cast<Color>(value)); };
  add(pipeline.micro_batches);
  add(pipeline.micro_batch_size);
  for (const ir::Stage& stage : pipeline.stages) {
    add(stage.segments.size());
    for (const ir::Segment& segment : stage.segments) {
      for (const auto value :
           {segment.first_block.value, segment.last_block.value, segment.virtual_stage,
            static_cast<int>(segment.recompute), segment.zero.stage, segment.zero.shard_group,
            segment.expert_parallel, static_cast<int>(segment.groups.size())}) {
        add(value);
      }
      for (const ir::Group& group : segment.groups) {
        for (const auto value : {group.tensor_parallel, static_cast<int>(group.sequence),
                                 group.sequence_degree, group.samples, group.state_weight,
                                 group.experts, static_cast<int>(group.devices.size())}) {
          add(value);
        }
        for (const DeviceId device : group.devices) {
          add(members.of_device[device].position);
          add(cluster.device(device).gpu_type);
          color = mix(color, slowdown[device]);
          if (hosts == nullptr) continue;
          const models::HostShare share = hosts->of(device);
          color = mix(mix(color, share.link.value), share.memory.value);
        }
      }
    }
  }
  return color;
}

const std::vector<Color>& Symmetry::refine(Meetings meetings, const std::vector<Meeting>& known,
                                           std::size_t most) {
  place_on_links(meetings, known);
  paint_fixed();
  std::size_t before = 0;
  for (;;) {
    const std::size_t pipelines = distinct(pipeline_colors_);
    if (pipelines > most) break;
    paint_links();
    std::vector<Color> local;
    for (const LocalClass& one : classes_) {
      for (const Color color : one.colors) local.push_back(mix(color, one.built));
    }
    const std::size_t count = pipelines + distinct(local) + distinct(link_colors_) +
                              distinct(flow_colors_) + distinct(collective_colors_);
    if (count == before) break;
    before = count;
    paint_rest();
  }
  return pipeline_colors_;
}

/// Between which devices the built pipeline sends, and whose paths decide its closed forms. Flows
/// of equal use are in the same transfers and collectives with the same bytes: they start together.
void Symmetry::find_patterns(LocalClass& one) {
  std::map<std::pair<DeviceId, DeviceId>, Color> flows;
  const auto add_flow = [&](DeviceId source, DeviceId destination, Color use) {
    if (source == destination) return;
    if (!local(source, destination) && !singleton(one.built)) return;
    Color& uses = flows.try_emplace({source, destination}, 5).first->second;
    uses = mix(uses, use);
  };
  std::set<std::int32_t> transfers, shapes;
  std::set<std::pair<std::int32_t, std::int32_t>> inner;  // Set, op group or -1 - rank.
  const ir::Program& program = in_.program;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    if (program.ranks[r].pipeline != one.built) continue;
    const std::size_t begin = program.stream_begin[r * ir::kStreams];
    const std::size_t end = program.stream_begin[(r + 1) * ir::kStreams];
    for (std::size_t i = begin; i < end; ++i) {
      const ir::Op& op = program.ops[i];
      if (op.transfers != ir::kNone) transfers.insert(op.transfers);
      if (op.kind == ir::OpKind::collective) {
        if (in_.partial.steps[op.match] < 0) {
          shapes.insert(program.collective_of(op).shape);
        }
      } else if (op.inner != ir::kNone) {
        inner.insert({op.inner, -1 - op.rank.value});
      }
    }
  }
  for (const std::int32_t set : transfers) {
    for (const ir::Transfer& transfer : program.transfer_sets[set]) {
      add_flow(transfer.source, transfer.destination, mix(mix(6, set), transfer.bytes.value));
    }
  }
  for (const std::int32_t index : shapes) {
    const ir::CollectiveShape& shape = program.collective_shapes[index];
    for (const ir::CollectiveShape::Part& part : shape.parts) {
      const std::vector<DeviceId>& group = program.group(part.group).devices;
      add_paths(group, shape.kind, one);
      for (const models::FlowEdge& edge :
           models::collective_flows(shape.kind, group, part.bytes, in_.path)) {
        add_flow(edge.source, edge.destination,
                 mix(mix(mix(7, index), edge.bytes.value), edge.extra_latency.value));
      }
    }
  }
  Color alone = 0;  // Where a collective repeats is not looked at: its flows are like no others.
  for (const auto& [set, rank] : inner) {
    for (const ir::InnerCollective& collective : program.inner_sets[set]) {
      add_exchange(collective, one);
      for (const std::int32_t index : collective.groups) {
        const std::vector<DeviceId>& group = program.group(index).devices;
        const bool inside = std::all_of(group.begin(), group.end(), [&](DeviceId device) {
          return in_.members.of_device[device].pipeline == one.built;
        });
        if (!inside && in_.mode == InnerMode::closed_form) {
          check_shared_paths(group, one);
          continue;
        }
        add_paths(group, collective.kind, one);
        if (in_.mode == InnerMode::closed_form) continue;
        for (const models::FlowEdge& edge : models::collective_flows(
                 collective.kind, group, collective.bytes, in_.path, collective.bytes_per_peer)) {
          if (in_.members.of_device[edge.source].pipeline != one.built) continue;
          add_flow(edge.source, edge.destination, mix(8, alone++));
        }
      }
    }
  }
  // Rings of one group are those of all its collectives.
  std::sort(one.paths.begin(), one.paths.end());
  one.paths.erase(std::unique(one.paths.begin(), one.paths.end()), one.paths.end());
  for (const auto& [flow, uses] : flows) {
    if (!in_.slices) {
      one.uses.push_back(mix(9, static_cast<Color>(one.flows.size())));
      one.flows.push_back(flow);
      continue;
    }
    const models::Path path = in_.path(flow.first, flow.second);
    Color color = mix(mix(uses, path.bandwidth.value), path.latency.value);
    color = mix(color, static_cast<int>(path.kind));
    one.flows.push_back(flow);
    one.uses.push_back(
        mix(color, static_cast<Color>(reinterpret_cast<std::uintptr_t>(path.calibration))));
  }
}

/// The paths that decide a collective's closed form: of its rings, which may leave the group's
/// order (nic_rings), or between all.
void Symmetry::add_paths(std::span<const DeviceId> group, ir::CollectiveKind kind,
                         LocalClass& one) {
  const auto add = [&](DeviceId a, DeviceId b) {
    if (a != b && local(a, b)) one.paths.emplace_back(a, b);
  };
  if (kind == ir::CollectiveKind::all_to_all) {
    for (const DeviceId a : group) {
      for (const DeviceId b : group) add(a, b);
    }
    return;
  }
  // The group's own order says how many rings there are.
  for (std::size_t i = 0; i < group.size(); ++i) add(group[i], group[(i + 1) % group.size()]);
  for (const std::vector<DeviceId>& ring : models::nic_rings(group, in_.path)) {
    for (std::size_t i = 0; i < ring.size(); ++i) add(ring[i], ring[(i + 1) % ring.size()]);
  }
}

/// A group that reaches over pipelines takes the same time for those that are in it alike.
void Symmetry::check_shared_paths(std::span<const DeviceId> group, const LocalClass& one) {
  if (in_.links && one.members.size() > 1) lonely.insert(one.members.begin(), one.members.end());
  const std::set<DeviceId> all(group.begin(), group.end());
  for (const DeviceId device : group) {
    const Position& at = in_.members.of_device[device];
    if (at.pipeline != one.built) continue;
    for (const int member : one.members) {
      if (all.count(in_.members.at(member, at.position)) == 0) lonely.insert(member);
    }
  }
}

void Symmetry::add_exchange(const ir::InnerCollective& inner, LocalClass& one) const {
  if (in_.mode != InnerMode::closed_form || inner.kind != ir::CollectiveKind::all_to_all ||
      one.members.size() == 1) {
    return;
  }
  const auto same = [&](const ir::InnerCollective* other) {
    return other->groups == inner.groups && other->bytes_per_peer == inner.bytes_per_peer;
  };
  if (std::none_of(one.exchanges.begin(), one.exchanges.end(), same)) {
    one.exchanges.push_back(&inner);
  }
}

std::uint32_t Symmetry::add_route(DeviceId source, DeviceId destination) {
  const auto begin = static_cast<std::uint32_t>(crossed_.size());
  topology_.route(source, destination, crossed_);
  const auto& links = topology_.links();
  crossed_.erase(std::remove_if(crossed_.begin() + begin, crossed_.end(),
                                [&](LinkId link) { return links[link].uncontended; }),
                 crossed_.end());
  return begin;
}

Color Symmetry::path_color(DeviceId source, DeviceId destination) const {
  const models::Path path = in_.path(source, destination);
  Color color = mix(2, path.bandwidth.value);
  color = mix(color, path.latency.value);
  color = mix(color, packed(static_cast<std::int32_t>(path.kind), path.source_nic));
  color = mix(color, static_cast<Color>(reinterpret_cast<std::uintptr_t>(path.calibration)));
  return mix(color, packed(in_.members.node_label[source], in_.members.node_label[destination]));
}

void Symmetry::add_local_flows() {
  local_fixed_.assign(colors_.size(), 0);
  std::size_t flows = 0;
  for (const LocalClass& one : classes_) flows += one.members.size() * one.flows.size();
  route_begin_.reserve(flows);
  crossed_.reserve(4 * flows);
  const models::Network network{topology_, in_.path, in_.factors};
  for (LocalClass& one : classes_) {
    one.first_flow = route_begin_.size();
    const auto position = [&](DeviceId device) { return in_.members.of_device[device]; };
    for (const int member : one.members) {
      Color& fixed = local_fixed_[member];
      const auto here = [&](DeviceId device) {
        const Position at = position(device);
        // A lone pipeline may send to others.
        return at.pipeline == one.built ? in_.members.at(member, at.position) : device;
      };
      for (const auto& [source, destination] : one.paths) {
        fixed = mix(fixed, path_color(here(source), here(destination)));
      }
      for (const ir::InnerCollective* inner : one.exchanges) {
        DeviceSets groups;
        for (const std::int32_t index : inner->groups) {
          std::vector<DeviceId>& group = groups.emplace_back();
          for (const DeviceId device : in_.program.group(index).devices) {
            group.push_back(here(device));
          }
        }
        fixed = mix(fixed, repetition_time(*inner, groups, network).value);
      }
      for (const auto& [source, destination] : one.flows) {
        const DeviceId from = here(source);
        const DeviceId to = here(destination);
        fixed = mix(fixed, path_color(from, to));
        route_begin_.push_back(add_route(from, to));
      }
    }
  }
  local_flows_ = route_begin_.size();
}

void Symmetry::add_global_flow(const models::FlowEdge& edge) {
  const Seconds extra = std::max(edge.extra_latency, Seconds{});
  const bool same = edge.source == edge.destination;
  const Seconds latency = same ? Seconds{} : topology_.path(edge.source, edge.destination).latency;
  load_of_.push_back(static_cast<std::uint32_t>(loads_.size()));
  loads_.push_back({edge.bytes, extra + latency});
  route_begin_.push_back(same ? static_cast<std::uint32_t>(crossed_.size())
                              : add_route(edge.source, edge.destination));
}

/// Adds copies of these global flows.
void Symmetry::repeat_global_flows(std::size_t first, std::size_t end) {
  if (first == end) return;
  const auto append = [](auto& list, std::size_t from, std::size_t to) {
    const std::size_t before = list.size();
    list.resize(before + to - from);
    std::copy(list.begin() + from, list.begin() + to, list.begin() + before);
  };
  const std::size_t flow = local_flows_ + end;
  const std::size_t from = route_begin_[local_flows_ + first];
  const std::size_t to = flow < route_begin_.size() ? route_begin_[flow] : crossed_.size();
  const auto moved = static_cast<std::uint32_t>(crossed_.size() - from);
  for (std::size_t f = first; f < end; ++f) {
    route_begin_.push_back(route_begin_[local_flows_ + f] + moved);
  }
  append(crossed_, from, to);
  append(load_of_, first, end);
}

void Symmetry::add_collectives() {
  const ir::Program& program = in_.program;
  std::size_t members = 0;
  for (std::size_t k = 0; k < program.collectives.size(); ++k) {
    if (in_.partial.steps[k] < 0) continue;
    for (const auto& part : program.shape_of(program.collectives[k]).parts) {
      members += program.group(part.group).devices.size();
    }
  }
  load_of_.reserve(members);
  route_begin_.reserve(route_begin_.size() + members + 1);
  crossed_.reserve(crossed_.size() + 4 * members);
  // Flows of the parts so far, by kind, group and bytes.
  std::map<std::tuple<ir::CollectiveKind, std::int32_t, Bytes>, std::pair<std::size_t, std::size_t>>
      known;
  for (std::size_t k = 0; k < program.collectives.size(); ++k) {
    if (in_.partial.steps[k] < 0) continue;
    const ir::CollectiveShape& shape = program.shape_of(program.collectives[k]);
    GlobalCollective one;
    one.index = static_cast<std::int32_t>(k);
    one.step = in_.partial.steps[k];
    one.first_flow = load_of_.size();
    one.repeats = true;
    Color color = mix(mix(3, one.step), static_cast<int>(shape.kind));
    const std::vector<DeviceId>& first = program.group(shape.parts.front().group).devices;
    const bool closed = in_.mode == InnerMode::closed_form && shape.parts.size() == 1 &&
                        within_rank(first) && takes_closed_form(program, shape, in_.path);
    for (const ir::CollectiveShape::Part& part : shape.parts) {
      const std::vector<DeviceId>& group = program.group(part.group).devices;
      color = mix(mix(color, part.bytes.value), static_cast<Color>(group.size()));
      if (closed) {
        for (std::size_t i = 0; i < group.size(); ++i) {
          color = mix(color, path_color(group[i], group[(i + 1) % group.size()]));
        }
        continue;
      }
      const auto [flows, fresh] =
          known.try_emplace({shape.kind, part.group, part.bytes}, load_of_.size(), load_of_.size());
      if (!fresh) {
        repeat_global_flows(flows->second.first, flows->second.second);
        continue;
      }
      one.repeats = false;
      for (const models::FlowEdge& edge :
           models::collective_flows(shape.kind, group, part.bytes, in_.path)) {
        add_global_flow(edge);
      }
      flows->second.second = load_of_.size();
    }
    one.end_flow = load_of_.size();
    collectives_.push_back(one);
    collective_fixed_.push_back(color);
  }
  route_begin_.push_back(static_cast<std::uint32_t>(crossed_.size()));
}

/// A link of the fabric is left out where other links of the flows that cross it, one of each flow
/// and each counted once, are together no wider: then no flow has less by it, and max-min shares do
/// not depend on it. Else the few pipelines whose rings cross an uplink would be unlike the rest.
void Symmetry::leave_out_wide_links() {
  if (in_.links) {
    whole_route_begin_ = route_begin_;
    whole_crossed_ = crossed_;
  }
  const auto bandwidth = [&](LinkId link) {
    const auto slow = in_.factors.find(link);
    return topology_.links()[link].bandwidth.value /
           (slow == in_.factors.end() ? 1.0 : slow->second);
  };
  // Of links of the fabric: the narrowest link that each flow crosses before it, behind it, and the
  // narrower of the two, repeated.
  const IdRange<LinkId> fabric = topology_.fabric();
  std::vector<std::array<std::vector<LinkId>, 3>> limits(fabric.past.index() -
                                                         fabric.first.index());
  const auto limit = [&](std::size_t flow) {
    const std::span<const LinkId> links = links_of(flow);
    LinkId before, behind;
    const auto narrower = [&](LinkId& narrowest, LinkId link) {
      if (topology_.is_fabric(link)) return;
      if (!narrowest.valid() || bandwidth(link) < bandwidth(narrowest)) narrowest = link;
    };
    for (std::size_t i = 0; i < links.size(); ++i) {
      narrower(before, links[i]);
      if (!topology_.is_fabric(links[i])) continue;
      if (!behind.valid()) {
        for (std::size_t j = i + 1; j < links.size(); ++j) narrower(behind, links[j]);
      }
      LinkId least = before;
      if (behind.valid()) narrower(least, behind);
      const std::array<LinkId, 3> own{before.valid() ? before : least,
                                      behind.valid() ? behind : least, least};
      for (std::size_t way = 0; way < own.size(); ++way) {
        std::vector<LinkId>& known = limits[links[i].index() - fabric.first.index()][way];
        if (known.empty() || known.back() != own[way]) known.push_back(own[way]);
      }
    }
  };
  for (std::size_t flow = 0; flow < local_flows_; ++flow) limit(flow);
  for (const GlobalCollective& one : collectives_) {
    if (one.repeats) continue;
    for (std::size_t f = one.first_flow; f < one.end_flow; ++f) limit(local_flows_ + f);
  }
  std::vector<bool> wide(topology_.links().size());
  for (const LinkId link : fabric) {
    for (std::vector<LinkId>& way : limits[link.index() - fabric.first.index()]) {
      std::sort(way.begin(), way.end());
      way.erase(std::unique(way.begin(), way.end()), way.end());
      double sum = 0;
      for (const LinkId other : way) {
        sum += other.valid() ? bandwidth(other) : std::numeric_limits<double>::infinity();
      }
      if (!way.empty() && sum <= (1 + kRounding) * bandwidth(link)) wide[link.index()] = true;
    }
  }
  if (std::find(wide.begin(), wide.end(), true) == wide.end()) return;
  std::size_t to = 0, from = 0;
  for (std::size_t flow = 0; flow + 1 < route_begin_.size(); ++flow) {
    const std::size_t end = route_begin_[flow + 1];
    route_begin_[flow] = static_cast<std::uint32_t>(to);
    for (; from < end; ++from) {
      const LinkId link = crossed_[from];
      if (!wide[link.index()]) crossed_[to++] = link;
    }
  }
  route_begin_.back() = static_cast<std::uint32_t>(to);
  crossed_.resize(to);
}

/// Which steps cross which links does not change from guess to guess.
void Symmetry::find_steps() {
  const auto for_each_crossing = [&](auto&& take) {  // take(link, step)
    for (const GlobalCollective& one : collectives_) {
      for (std::size_t flow = one.first_flow; flow < one.end_flow; ++flow) {
        for (const LinkId link : links_of(local_flows_ + flow)) take(link.index(), one.step);
      }
    }
  };
  // Steps ascend from collective to collective: on each link equal ones follow each other.
  const std::size_t links = topology_.links().size();
  std::vector<std::int32_t> last(links, -1);
  link_begin_.assign(links + 1, 0);
  for_each_crossing([&](std::size_t link, std::int32_t step) {
    ORRERY_CHECK(step >= last[link], "step {} after {}", step, last[link]);
    if (std::exchange(last[link], step) != step) ++link_begin_[link + 1];
  });
  std::partial_sum(link_begin_.begin(), link_begin_.end(), link_begin_.begin());
  link_steps_.resize(link_begin_.back());
  std::vector<std::uint32_t> past(link_begin_.begin(), link_begin_.end() - 1);
  last.assign(links, -1);
  slots_.reserve(crossed_.size() - route_begin_[local_flows_]);
  for_each_crossing([&](std::size_t link, std::int32_t step) {
    if (std::exchange(last[link], step) != step) link_steps_[past[link]++] = step;
    slots_.push_back(past[link] - 1);
  });
}

std::int32_t Symmetry::find_place(LinkId link, std::int32_t family) const {
  if (family == 0 || all_meet_) return local_place_[link.index()];
  const auto begin = link_steps_.begin() + link_begin_[link.index()];
  const auto end = link_steps_.begin() + link_begin_[link.index() + 1];
  const auto at = std::lower_bound(begin, end, family - 1);
  return at == end || *at != family - 1 ? -1 : step_place_[at - link_steps_.begin()];
}

std::int32_t Symmetry::open(std::int32_t& place, LinkId link) {
  if (place < 0) {
    place = static_cast<std::int32_t>(parents_.size());
    parents_.push_back(place);
    link_of_place_.push_back(link);
  }
  return place;
}

std::int32_t Symmetry::root(std::int32_t place) const {
  while (parents_[place] != place) {
    std::int32_t& parent = parents_[place];
    parent = parents_[parent];
    place = parent;
  }
  return place;
}

bool Symmetry::unite(std::int32_t a, std::int32_t b) {
  if (a < 0 || b < 0) return false;
  a = root(a);
  b = root(b);
  if (a == b) return false;
  parents_[std::max(a, b)] = std::min(a, b);
  return true;
}

void Symmetry::place_on_links(Meetings meetings, const std::vector<Meeting>& known) {
  all_meet_ = meetings == Meetings::all;
  parents_.clear();
  link_of_place_.clear();
  step_place_.assign(link_steps_.size(), -1);
  local_place_.assign(topology_.links().size(), -1);
  places_.resize(crossed_.size());
  const std::size_t first = route_begin_[local_flows_];
  for (std::size_t i = 0; i < crossed_.size(); ++i) {
    const LinkId link = crossed_[i];
    const bool shared = i < first || all_meet_;
    places_[i] = open(shared ? local_place_[link.index()] : step_place_[slots_[i - first]], link);
  }
  if (!all_meet_) {
    for (const auto& [link, a, b] : known) unite(find_place(link, a), find_place(link, b));
    for_each_local([&](const LocalClass&, int member, std::size_t, std::size_t flow) {
      if (in_.meeting.count(member) == 0) return;
      for (const LinkId link : links_of(flow)) {
        const std::int32_t here = local_place_[link.index()];
        for_each_step(link, [&](std::int32_t, std::int32_t place) { unite(here, place); });
      }
    });
    for (std::int32_t& at : places_) at = root(at);
  }
  capacity_.assign(parents_.size(), 0);
  for (std::size_t at = 0; at < capacity_.size(); ++at) {
    const LinkId link = link_of_place_[at];
    const auto slow = in_.factors.find(link);
    const double factor = slow == in_.factors.end() ? 1.0 : slow->second;
    capacity_[at] = mix(4, topology_.links()[link].bandwidth.value / factor);
  }
}

void Symmetry::paint_fixed() {
  pipeline_colors_ = colors_;
  for (std::size_t p = 0; p < colors_.size(); ++p) {
    pipeline_colors_[p] = mix(colors_[p], local_fixed_[p]);
  }
  paint_messages();
  for (LocalClass& one : classes_) one.colors = one.uses;
  collective_colors_ = collective_fixed_;
  flow_colors_.resize(load_of_.size());
  for (std::size_t k = 0; k < collectives_.size(); ++k) {
    for (std::size_t f = collectives_[k].first_flow; f < collectives_[k].end_flow; ++f) {
      flow_colors_[f] =
          mix(collective_colors_[k], static_cast<Color>(std::llround(load(f).bytes.value)));
    }
  }
}

/// A message between shards waits for what its ranks synchronized before, and holds up what they
/// synchronize next: its place among the pipeline's collectives counts.
void Symmetry::paint_messages() {
  std::vector<std::uint32_t> roles(pipeline_colors_.size(), 0);  // In collectives so far.
  std::size_t next = 0;
  for (const models::PartialProgram::Message& message : in_.partial.messages) {
    for (; next < collectives_.size() && collectives_[next].index < message.after; ++next) {
      const ir::Collective& collective = in_.program.collectives[as_size(collectives_[next].index)];
      for (const ir::CollectiveShape::Part& part : in_.program.shape_of(collective).parts) {
        for (const DeviceId device : in_.program.group(part.group).devices) {
          ++roles[as_size(in_.members.of_device[device].pipeline)];
        }
      }
    }
    const auto position = [&](DeviceId device) { return in_.members.of_device[device].position; };
    Color& color = pipeline_colors_[as_size(message.pipeline)];
    color = mix(color, packed(position(message.source), position(message.destination)));
    color = mix(mix(color, Color{roles[as_size(message.pipeline)]}), message.bytes.value);
  }
}

/// A link is as the flows that cross it.
void Symmetry::paint_links() {
  crossing_.assign(capacity_.size(), 0);
  const auto cross = [&](std::size_t flow, Color color) {
    for (const std::int32_t at : places_of(flow)) crossing_[at] += color;
  };
  for_each_local([&](const LocalClass& one, int member, std::size_t j, std::size_t flow) {
    cross(flow, mix(pipeline_colors_[member], one.colors[j]));
  });
  for (std::size_t f = 0; f < flow_colors_.size(); ++f) cross(local_flows_ + f, flow_colors_[f]);
  link_colors_.resize(capacity_.size());
  for (std::size_t at = 0; at < capacity_.size(); ++at) {
    link_colors_[at] = mix(capacity_[at], crossing_[at]);
  }
}

/// Pipelines, flows and collectives are as the links and the others that they meet.
void Symmetry::paint_rest() {
  std::vector<Color> met(pipeline_colors_.size(), 0);  // In the order of the collectives.
  std::vector<Color> roles(pipeline_colors_.size(), 0);
  std::vector<std::size_t> touched;
  std::vector<Color> collectives = collective_colors_;
  for (std::size_t k = 0; k < collectives_.size(); ++k) {
    const GlobalCollective& one = collectives_[k];
    Color devices = 0;
    const Color own = collective_colors_[k];
    const ir::CollectiveShape& shape = in_.program.shape_of(in_.program.collectives[one.index]);
    for (std::size_t part = 0; part < shape.parts.size(); ++part) {
      for (const DeviceId device : in_.program.group(shape.parts[part].group).devices) {
        const Position& at = in_.members.of_device[device];
        const std::size_t p = at.pipeline;
        const Color role = packed(static_cast<std::int32_t>(part), at.position);
        devices += blend(pipeline_colors_[p], role);
        if (roles[p] == 0) touched.push_back(p);
        roles[p] += blend(own, role);
      }
    }
    collectives[k] = mix(own, devices);
    for (const std::size_t p : touched) met[p] = mix(met[p], std::exchange(roles[p], 0));
    touched.clear();
  }
  for (std::size_t k = 0; k < collectives_.size(); ++k) {
    Color flows = 0;
    for (std::size_t f = collectives_[k].first_flow; f < collectives_[k].end_flow; ++f) {
      Color links = 0;
      for (const std::int32_t at : places_of(local_flows_ + f)) links += link_colors_[at];
      flow_colors_[f] = blend(flow_colors_[f] + collective_colors_[k], links);
      flows += blend(flow_colors_[f], std::bit_cast<Color>(load(f).tail.value));
    }
    collectives[k] = mix(collectives[k], flows);
  }
  collective_colors_ = std::move(collectives);
  paint_local_flows();
  std::vector<Color> own(pipeline_colors_.size(), 0);
  for_each_local([&](const LocalClass&, int member, std::size_t, std::size_t flow) {
    Color& color = own[member];
    for (const std::int32_t at : places_of(flow)) {
      color = mix(color, link_colors_[at]);
    }
  });
  for (std::size_t p = 0; p < pipeline_colors_.size(); ++p) {
    pipeline_colors_[p] = mix(mix(pipeline_colors_[p], own[p]), met[p]);
  }
}

bool Symmetry::sends(int pipeline, DeviceId source, DeviceId destination) const {
  const auto& flows = classes_[class_of_[pipeline]].flows;
  return std::binary_search(flows.begin(), flows.end(), std::pair(source, destination));
}

/// Those of the built pipeline speak for all: where the same flow of another one meets other links,
/// their pipelines' colors differ.
void Symmetry::paint_local_flows() {
  for (LocalClass& one : classes_) {
    for (std::size_t j = 0; j < one.flows.size(); ++j) {
      for (const std::int32_t at : places_of(one.first_flow + j)) {
        one.colors[j] = mix(one.colors[j], link_colors_[at]);
      }
    }
  }
}

/// A pipeline in two collectives of one class would wait for itself.
void Symmetry::find_doubles(const std::vector<int>& uses) {
  std::map<std::pair<std::int32_t, int>, std::int32_t> known;  // By class, pipeline.
  for (const GlobalCollective& one : collectives_) {
    if (uses[one.dense] < 2) continue;
    const ir::CollectiveShape& shape = in_.program.shape_of(in_.program.collectives[one.index]);
    for (const ir::CollectiveShape::Part& part : shape.parts) {
      for (const DeviceId device : in_.program.group(part.group).devices) {
        const int p = in_.members.of_device[device].pipeline;
        const auto [entry, first] = known.try_emplace({one.dense, p}, one.index);
        if (entry->second != one.index) lonely.insert(p);
      }
    }
  }
}

std::unique_ptr<Folding> Symmetry::fold(bool crossings) {
  auto out = std::make_unique<Folding>();
  out->devices = in_.members.devices;
  for (std::size_t p = 0; p < colors_.size(); ++p) {
    out->representative.push_back(classes_[class_of_[p]].built);
  }
  // Classes of flows: those of local classes first.
  std::size_t routes = 0;
  std::vector<std::size_t> first_of_route;
  for (LocalClass& one : classes_) {
    std::unordered_map<Color, std::int32_t> known;
    one.routes.clear();
    for (std::size_t j = 0; j < one.flows.size(); ++j) {
      const auto [at, fresh] = known.try_emplace(one.colors[j], static_cast<std::int32_t>(routes));
      one.routes.push_back(at->second);
      if (!fresh) continue;
      ++routes;
      first_of_route.push_back(one.first_flow + j);
    }
  }
  step_of_route_.assign(routes, -1);
  std::unordered_map<Color, std::int32_t> class_of_collective;
  std::unordered_map<Color, std::int32_t> route_of_flow;
  std::vector<std::int32_t> global_route(load_of_.size());
  std::vector<int> uses(collectives_.size(), 0);  // By class of collectives.
  out->class_of_collective.assign(in_.program.collectives.size(), -1);
  for (std::size_t k = 0; k < collectives_.size(); ++k) {
    GlobalCollective& one = collectives_[k];
    const auto [at, fresh] = class_of_collective.try_emplace(
        collective_colors_[k], static_cast<std::int32_t>(class_of_collective.size()));
    one.dense = at->second;
    ++uses[one.dense];
    if (one.first_flow == one.end_flow) continue;
    out->class_of_collective[one.index] = one.dense;
    if (fresh) out->collective_flows.resize(one.dense + 1);
    std::vector<Folding::Flow>& flows = out->collective_flows[one.dense];
    for (std::size_t f = one.first_flow; f < one.end_flow; ++f) {
      const auto [route, first] =
          route_of_flow.try_emplace(flow_colors_[f], static_cast<std::int32_t>(routes));
      if (first) {
        ++routes;
        first_of_route.push_back(local_flows_ + f);
        step_of_route_.push_back(one.step);
        flows.push_back({route->second, load(f).bytes, load(f).tail});
      } else if (fresh) {
        const auto same = std::find_if(
            flows.begin(), flows.end(),
            [like = route->second](const Folding::Flow& flow) { return flow.route == like; });
        same->tail = std::max(same->tail, load(f).tail);
      }
      global_route[f] = route->second;
    }
  }
  find_doubles(uses);
  if (!lonely.empty()) return nullptr;
  out->collective_flows.resize(class_of_collective.size());

  // How often flows of each class cross the first link of each class of links.
  std::unordered_map<Color, std::int32_t> class_of_link;
  std::vector<std::int32_t> first_of_class;
  std::vector<std::int32_t> dense(capacity_.size(), -1);
  for (const std::int32_t at : places_) {
    const std::size_t p = at;
    if (dense[p] >= 0) continue;
    const auto [entry, fresh] = class_of_link.try_emplace(
        link_colors_[p], static_cast<std::int32_t>(first_of_class.size()));
    if (fresh) first_of_class.push_back(at);
    dense[p] = entry->second;
  }
  std::unordered_map<std::uint64_t, std::int32_t> counts;  // By route, class of links.
  const auto count = [&](std::size_t flow, std::size_t route) {
    for (const std::int32_t at : places_of(flow)) {
      const std::int32_t of = dense[at];
      if (first_of_class[of] != at) continue;
      ++counts[static_cast<std::uint64_t>(route) << 32 | static_cast<std::uint32_t>(of)];
    }
  };
  for_each_local([&](const LocalClass& one, int, std::size_t j, std::size_t flow) {
    count(flow, one.routes[j]);
  });
  for (std::size_t f = 0; f < load_of_.size(); ++f) {
    count(local_flows_ + f, global_route[f]);
  }
  for (std::size_t route = 0; route < routes; ++route) {
    Folding::Route made;
    std::vector<std::int32_t> crossed;
    for (const std::int32_t at : places_of(first_of_route[route])) {
      const std::int32_t of = dense[at];
      if (std::find(crossed.begin(), crossed.end(), of) != crossed.end()) continue;
      crossed.push_back(of);
      const std::int32_t first = first_of_class[of];
      const std::int32_t times =
          counts.at(static_cast<std::uint64_t>(route) << 32 | static_cast<std::uint32_t>(of));
      made.links.insert(made.links.end(), times, link_of_place_[first]);
    }
    out->routes.push_back(std::move(made));
  }
  for (const LocalClass& one : classes_) {
    for (std::size_t j = 0; j < one.flows.size(); ++j) {
      const auto& [source, destination] = one.flows[j];
      const std::int32_t route = one.routes[j];
      const bool first = first_of_route[route] == one.first_flow + j;
      if (first) out->routes[route].latency = topology_.path(source, destination).latency;
      out->route_of_pair[Folding::key(source, destination)] = first ? route : ~route;
    }
  }
  if (crossings) {
    out->crossed = whole_crossed_;
    for_each_local([&](const LocalClass& one, int, std::size_t j, std::size_t flow) {
      out->crossings.push_back({one.routes[j], whole_route_begin_[flow]});
    });
    for (std::size_t f = 0; f < load_of_.size(); ++f) {
      out->crossings.push_back({global_route[f], whole_route_begin_[local_flows_ + f]});
    }
  }
  return out;
}

Symmetry::StepsBeside Symmetry::steps_beside_sends() const {
  StepsBeside beside;
  const ir::Program& program = in_.program;
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> steps_after;  // By pass.
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::collective || op.stream != ir::Stream::collective) continue;
    if (in_.partial.steps[op.match] < 0) continue;
    const OpId id{static_cast<std::int32_t>(&op - program.ops.data())};
    for (const OpId before : program.dependencies_of(id)) {
      if (ir::is_pass(program.op(before).kind)) {
        steps_after[before.value].push_back(in_.partial.steps[op.match]);
      }
    }
  }
  if (steps_after.empty()) return beside;
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::send) continue;
    const OpId id{static_cast<std::int32_t>(&op - program.ops.data())};
    for (const OpId before : program.dependencies_of(id)) {
      const auto steps = steps_after.find(before.value);
      if (steps == steps_after.end()) continue;
      for (const ir::Transfer& transfer : program.transfers_of(op)) {
        beside[{transfer.source, transfer.destination}].insert(steps->second.begin(),
                                                               steps->second.end());
      }
    }
  }
  return beside;
}

std::vector<Symmetry::Meeting> Symmetry::likely_meetings() const {
  const StepsBeside beside = steps_beside_sends();
  std::vector<Meeting> likely;
  if (beside.empty()) return likely;
  std::vector<bool> known(link_steps_.size());
  for_each_local([&](const LocalClass& one, int, std::size_t j, std::size_t flow) {
    const auto own = beside.find(one.flows[j]);
    if (own == beside.end()) return;
    for (const LinkId link : links_of(flow)) {
      for (std::uint32_t i = link_begin_[link.index()]; i < link_begin_[link.index() + 1]; ++i) {
        if (known[i] || own->second.count(link_steps_[i]) == 0) continue;
        known[i] = true;
        likely.push_back({link, 0, 1 + link_steps_[i]});
      }
    }
  });
  return likely;
}

std::vector<Symmetry::Meeting> Symmetry::find_meetings(const std::vector<FlowInterval>& flows,
                                                       double nearness) {
  std::vector<Meeting> found;
  add_meetings(flows, {}, found);
  if (found.empty() || nearness <= 0) return found;
  Seconds last;
  for (const FlowInterval& flow : flows) last = std::max(last, flow.end);
  add_meetings(flows, nearness * (last - flows.front().start), found);
  return found;
}

/// `apart`: so long before or after a step a flow inside a pipeline counts as met.
void Symmetry::add_meetings(const std::vector<FlowInterval>& flows, Seconds apart,
                            std::vector<Meeting>& found) {
  // When each step moved bytes in each iteration.
  std::map<std::pair<std::int32_t, int>, std::pair<Seconds, Seconds>> times;
  for (const FlowInterval& flow : flows) {
    const std::int32_t step = step_of_route_[flow.route];
    if (step < 0) continue;
    const auto [at, fresh] = times.try_emplace({step, flow.iteration}, flow.start, flow.end);
    if (fresh) continue;
    at->second.first = std::min(at->second.first, flow.start);
    at->second.second = std::max(at->second.second, flow.end);
  }
  struct Window {
    std::int32_t step;
    Seconds begin, end;
  };
  std::vector<Window> windows;
  for (const auto& [at, time] : times) windows.push_back({at.first, time.first, time.second});
  const std::int32_t steps = windows.empty() ? 0 : windows.back().step + 1;
  std::sort(windows.begin(), windows.end(),
            [](const Window& a, const Window& b) { return a.begin < b.begin; });
  std::vector<Seconds> ended;  // By window: until when it or one before it lasts.
  for (const Window& window : windows) {
    ended.push_back(ended.empty() ? window.end : std::max(ended.back(), window.end));
  }
  const auto overlap = [&](Seconds begin, Seconds end, const Window& window) {
    return std::min(end, window.end) - std::max(begin, window.begin) > kTouch - apart;
  };
  // Which steps and local flows did so at the same time.
  std::vector<std::vector<bool>> met(step_of_route_.size());  // By route, step.
  for (const FlowInterval& flow : flows) {
    if (step_of_route_[flow.route] >= 0) continue;
    std::vector<bool>& own = met[flow.route];
    own.resize(as_size(steps), false);
    const auto first = std::upper_bound(ended.begin(), ended.end(), flow.start - apart);
    for (std::size_t w = as_size(first - ended.begin()); w < windows.size(); ++w) {
      if (windows[w].begin > flow.end + apart) break;
      if (overlap(flow.start, flow.end, windows[w])) own[as_size(windows[w].step)] = true;
    }
  }
  std::vector<std::vector<bool>> steps_met(as_size(steps));  // By the earlier step and the later.
  bool any_steps = false;
  for (const Window& a : windows) {
    for (const Window& b : windows) {
      if (b.begin > a.end) break;  // Further ones begin later still.
      if (apart.value != 0 || a.step == b.step || !overlap(a.begin, a.end, b)) continue;
      std::vector<bool>& own = steps_met[as_size(std::min(a.step, b.step))];
      own.resize(as_size(steps), false);
      own[as_size(std::max(a.step, b.step))] = any_steps = true;
    }
  }
  for_each_local([&](const LocalClass& one, int, std::size_t j, std::size_t flow) {
    const std::vector<bool>& own = met[one.routes[j]];
    if (own.empty()) return;
    for (const LinkId link : links_of(flow)) {
      const std::int32_t here = local_place_[link.index()];
      for_each_step(link, [&](std::int32_t step, std::int32_t place) {
        if (as_size(step) >= own.size() || !own[as_size(step)]) return;
        if (unite(here, place)) found.push_back({link, 0, 1 + step});
      });
    }
  });
  if (!any_steps) return;
  const auto links = static_cast<std::int32_t>(topology_.links().size());
  for (const LinkId link : IdRange<LinkId>{{0}, {links}}) {
    for_each_step(link, [&](std::int32_t a, std::int32_t at) {
      if (as_size(a) >= steps_met.size() || steps_met[as_size(a)].empty()) return;
      const std::vector<bool>& own = steps_met[as_size(a)];
      for_each_step(link, [&](std::int32_t b, std::int32_t other) {
        if (a >= b || as_size(b) >= own.size() || !own[as_size(b)]) return;
        if (unite(at, other)) found.push_back({link, 1 + a, 1 + b});
      });
    });
  }
}

}  // namespace orrery::sim
