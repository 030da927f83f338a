#include "models/ir/program_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"

namespace orrery::ir {
namespace {

/// Each step returns early at the first violation and leaves it in problem_. Later steps rely on
/// what earlier ones have checked.
class Checker {
 public:
  explicit Checker(const Program& program) : p_(program) {}

  std::string run() {
    using Step = bool (Checker::*)();
    constexpr Step kSteps[] = {
        &Checker::check_tables,      &Checker::check_shapes,    &Checker::check_inner_sets,
        &Checker::check_streams,     &Checker::check_ops,       &Checker::check_transfers,
        &Checker::check_collectives, &Checker::check_op_groups, &Checker::check_dependencies};
    for (const Step step : kSteps) {
      if (!(this->*step)()) return std::move(problem_);
    }
    return "";
  }

 private:
  template <class... Args>
  bool fail(fmt::format_string<Args...> text, Args&&... args) {
    problem_ = fmt::format(text, std::forward<Args>(args)...);
    return false;
  }

  /// -1 (none) is allowed.
  template <class Table>
  static bool refers(std::int32_t index, const Table& table) {
    return index >= kNone && (index < 0 || as_size(index) < table.size());
  }
  template <class Table>
  static bool within(std::int32_t index, const Table& table) {
    return index >= 0 && as_size(index) < table.size();
  }
  template <class E>
  static bool known(E value) {
    static const auto kLimit = static_cast<std::underlying_type_t<E>>(enum_names(E{}).size());
    return value >= E{} && static_cast<std::underlying_type_t<E>>(value) < kLimit;
  }
  static bool amount(Bytes bytes) { return std::isfinite(bytes.value) && bytes.value >= 0; }

  const Op& op(std::size_t i) const { return p_.ops[i]; }
  const Rank& rank_of(const Op& op) const { return p_.rank_of(op); }
  static bool stands_for(const Rank& rank, DeviceId device) {
    return std::find(rank.devices.begin(), rank.devices.end(), device) != rank.devices.end();
  }

  std::string describe(std::size_t i) const { return describe_op(p_, i); }

  bool check_tables() {
    const auto blocks = static_cast<std::int32_t>(p_.header.blocks.size());
    for (std::size_t i = 0; i < p_.ranks.size(); ++i) {
      const Rank& rank = p_.ranks[i];
      if (!rank.device.valid()) return fail("rank {} has no device", i);
      if (rank.devices.empty() || rank.devices.front() != rank.device) {
        return fail("rank {} does not begin the devices that it stands for", i);
      }
      if (!within(rank.pipeline, p_.pipelines)) {
        return fail("rank {} is in pipeline {} of {}", i, rank.pipeline, p_.pipelines.size());
      }
    }
    for (std::size_t i = 0; i < p_.segments.size(); ++i) {
      const SegmentInfo& segment = p_.segments[i];
      if (!within(segment.pipeline, p_.pipelines)) {
        return fail("segment {} is in pipeline {} of {}", i, segment.pipeline, p_.pipelines.size());
      }
      if (!segment.first_block.valid() || segment.last_block < segment.first_block ||
          segment.last_block.value >= blocks) {
        return fail("segment {} covers blocks {} to {} of {}", i, segment.first_block.value,
                    segment.last_block.value, blocks);
      }
    }
    for (std::size_t i = 0; i < p_.groups.size(); ++i) {
      std::vector<DeviceId> devices = p_.groups[i].devices;
      std::sort(devices.begin(), devices.end());
      if (devices.empty()) return fail("group {} is empty", i);
      if (!devices.front().valid()) return fail("group {} has an invalid device", i);
      if (std::adjacent_find(devices.begin(), devices.end()) != devices.end()) {
        return fail("group {} has a device twice", i);
      }
    }
    for (std::size_t i = 0; i < p_.region_sets.size(); ++i) {
      for (const Region& region : p_.region_sets[i]) {
        if (!good(region, blocks)) return fail("region set {} leaves the model", i);
      }
    }
    for (std::size_t i = 0; i < p_.transfer_sets.size(); ++i) {
      for (const Transfer& transfer : p_.transfer_sets[i]) {
        if (!transfer.source.valid() || !transfer.destination.valid() || !amount(transfer.bytes)) {
          return fail("transfer set {} has no device or a wrong size", i);
        }
      }
    }
    if (p_.resident.size() > p_.ranks.size()) {
      return fail("{} ranks have {} sets of resident buffers", p_.ranks.size(), p_.resident.size());
    }
    return check_effects("buffer set", p_.buffer_sets) &&
           check_effects("resident set", p_.resident);
  }

  static bool good(const Region& region, std::int32_t blocks) {
    return known(region.tensor) && region.first_block.valid() &&
           region.first_block <= region.last_block && region.last_block.value < blocks &&
           region.parameter >= 0 && region.begin >= 0 && region.begin <= region.end;
  }

  bool check_effects(const char* name, const std::vector<std::vector<BufferEffect>>& sets) {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      for (const BufferEffect& effect : sets[i]) {
        if (!known(effect.kind) || !known(effect.action) || !amount(effect.bytes) ||
            !refers(effect.segment, p_.segments)) {
          return fail("{} {} has an unknown kind, action, segment or size", name, i);
        }
      }
    }
    return true;
  }

  bool check_shapes() {
    const auto blocks = static_cast<std::int32_t>(p_.header.blocks.size());
    for (std::size_t i = 0; i < p_.collective_shapes.size(); ++i) {
      const CollectiveShape& shape = p_.collective_shapes[i];
      if (!known(shape.kind) || !known(shape.purpose)) {
        return fail("collective shape {} is of no known kind", i);
      }
      if (!refers(shape.regions, p_.region_sets)) {
        return fail("collective shape {} names region set {}", i, shape.regions);
      }
      if (shape.parts.empty()) return fail("collective shape {} has no part", i);
      for (const CollectiveShape::Part& part : shape.parts) {
        if (!within(part.group, p_.groups) || !amount(part.bytes)) {
          return fail("collective shape {} has a part with no group or a wrong size", i);
        }
        const auto size = p_.group(part.group).devices.size();
        if (!part.member_regions.empty() && part.member_regions.size() != size) {
          return fail("collective shape {} tells the regions of {} members, its group has {}", i,
                      part.member_regions.size(), size);
        }
        for (const auto& regions : part.member_regions) {
          for (const Region& region : regions) {
            if (!good(region, blocks)) return fail("collective shape {} leaves the model", i);
          }
        }
      }
    }
    return true;
  }

  bool check_inner_sets() {
    for (std::size_t i = 0; i < p_.inner_sets.size(); ++i) {
      for (const InnerCollective& inner : p_.inner_sets[i]) {
        if (!known(inner.kind) || !known(inner.purpose) || inner.count < 1 ||
            !amount(inner.bytes) || inner.groups.empty()) {
          return fail("inner set {} has a collective without kind, count, size or group", i);
        }
        for (const std::int32_t group : inner.groups) {
          if (!within(group, p_.groups)) return fail("inner set {} names group {}", i, group);
          const auto size = p_.group(group).devices.size();
          if (inner.kind == CollectiveKind::all_to_all &&
              inner.bytes_per_peer.size() != size * size) {
            return fail("inner set {} tells {} pairs of an all-to-all among {}", i,
                        inner.bytes_per_peer.size(), size);
          }
        }
      }
    }
    return true;
  }

  bool check_streams() {
    const auto& begin = p_.stream_begin;
    if (begin.size() != p_.ranks.size() * kStreams + 1) {
      return fail("stream_begin has {} entries for {} ranks", begin.size(), p_.ranks.size());
    }
    if (begin.front() != 0 || begin.back() != p_.ops.size() ||
        !std::is_sorted(begin.begin(), begin.end())) {
      return fail("stream_begin does not rise from 0 to the number of ops, {}", p_.ops.size());
    }
    for (std::size_t slot = 0; slot + 1 < begin.size(); ++slot) {
      for (std::size_t i = begin[slot]; i < begin[slot + 1]; ++i) {
        const Op& o = op(i);
        if (!known(o.kind) || !known(o.stream) || !known(o.location) || !known(o.purpose)) {
          return fail("op {} has a kind, stream, location or purpose that does not exist", i);
        }
        if (!within(o.rank.value, p_.ranks) || o.rank.index() != slot / kStreams ||
            index_of(o.stream) != slot % kStreams) {
          return fail("{} is among the ops of rank {}, stream {}", describe(i), slot / kStreams,
                      name_of(static_cast<Stream>(slot % kStreams)));
        }
      }
    }
    return true;
  }

  bool check_ops() {
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      const Op& o = op(i);
      if (!refers(o.segment, p_.segments) || !refers(o.inner, p_.inner_sets) ||
          !refers(o.buffers, p_.buffer_sets) || !refers(o.regions, p_.region_sets) ||
          !refers(o.transfers, p_.transfer_sets)) {
        return fail("{} refers to an entry that does not exist", describe(i));
      }
      if (!amount(o.bytes) || o.samples < 0 || o.micro_batch.value < kNone) {
        return fail("{} has a wrong size, share or micro-batch", describe(i));
      }
      if (!is_pass(o.kind) && !is_transfer(o.kind) && o.kind != OpKind::collective &&
          o.match != kNone) {
        return fail("{} has a match", describe(i));
      }
      if (!is_pass(o.kind)) continue;
      if (o.segment == kNone) return fail("{} has no segment", describe(i));
      const auto pipeline = rank_of(o).pipeline;
      const auto count = p_.pipeline(pipeline).micro_batches;
      const auto& segment = p_.segment_of(o);
      // A rerouted micro-batch belongs to the pipeline of its segment, not of its rank.
      const auto own = p_.pipeline(segment.pipeline).micro_batches;
      if (!o.micro_batch.valid() || o.micro_batch.value >= std::max(count, own)) {
        return fail("{} is not of one of {} micro-batches", describe(i), std::max(count, own));
      }
      if (o.inner != kNone && !touches_inner(o)) {
        return fail("{} has inner collectives without its own devices", describe(i));
      }
    }
    return true;
  }

  bool touches_inner(const Op& o) const {
    const Rank& rank = rank_of(o);
    const auto set = p_.inner_of(o);
    return std::all_of(set.begin(), set.end(), [&](const InnerCollective& inner) {
      return std::any_of(inner.groups.begin(), inner.groups.end(), [&](std::int32_t group) {
        const auto& devices = p_.group(group).devices;
        return std::find_first_of(devices.begin(), devices.end(), rank.devices.begin(),
                                  rank.devices.end()) != devices.end();
      });
    });
  }

  bool check_transfers() {
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      const Op& o = op(i);
      if (!is_transfer(o.kind)) continue;
      if (!within(o.match, p_.ops)) return fail("{} has no match", describe(i));
      const std::size_t at = o.match;
      const Op& other = op(at);
      const OpKind opposite = o.kind == OpKind::send ? OpKind::recv : OpKind::send;
      if (other.kind != opposite || other.match != static_cast<std::int32_t>(i)) {
        return fail("{} and {} do not match each other", describe(i), describe(at));
      }
      if (o.transfers == kNone || other.transfers == kNone) {
        return fail("{} has no transfers", describe(i));
      }
      const auto& transfers = p_.transfer_sets[o.transfers];
      if (o.transfers != other.transfers && transfers != p_.transfer_sets[other.transfers]) {
        return fail("{} and {} have different transfers", describe(i), describe(at));
      }
      if (o.kind == OpKind::recv) continue;
      for (const Transfer& transfer : transfers) {
        if (!stands_for(rank_of(o), transfer.source) ||
            !stands_for(rank_of(other), transfer.destination)) {
          return fail("{} moves from device {} to {}, which its ranks {} and {} do not stand for",
                      describe(i), transfer.source.value, transfer.destination.value, o.rank.value,
                      other.rank.value);
        }
      }
    }
    return true;
  }

  bool good(const Rendezvous& rendezvous) const {
    return rendezvous.first_member <= p_.members.size() && rendezvous.member_count > 0 &&
           rendezvous.member_count <= p_.members.size() - rendezvous.first_member;
  }

  /// Every member exists and refers back, and no two are of one rank.
  bool check_rendezvous(const char* name, std::size_t index, const Rendezvous& rendezvous,
                        bool (*belongs)(OpKind)) {
    if (!good(rendezvous)) return fail("{} {} has no members", name, index);
    std::vector<RankId> ranks;
    for (const OpId member : p_.members_of(rendezvous)) {
      if (!within(member.value, p_.ops)) {
        return fail("{} {} has member {}, which is no op", name, index, member.value);
      }
      const Op& o = p_.op(member);
      if (!belongs(o.kind) || o.match != static_cast<std::int32_t>(index)) {
        return fail("{} {} has member {}, which does not refer back", name, index,
                    describe(member.index()));
      }
      ranks.push_back(o.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
      return fail("{} {} has two members of one rank", name, index);
    }
    return true;
  }

  /// Counts how often ops are members, to find ops that refer to a rendezvous that omits them.
  template <class List, class Get>
  std::size_t count_members(const List& rendezvous, Get get) const {
    std::size_t count = 0;
    for (const auto& rendezvous : rendezvous) count += get(rendezvous).member_count;
    return count;
  }

  bool check_collectives() {
    std::size_t referring = 0;
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      if (op(i).kind != OpKind::collective) continue;
      ++referring;
      if (!within(op(i).match, p_.collectives)) return fail("{} has no collective", describe(i));
    }
    for (std::size_t c = 0; c < p_.collectives.size(); ++c) {
      const Collective& collective = p_.collectives[c];
      if (!within(collective.shape, p_.collective_shapes)) {
        return fail("collective {} has no shape", c);
      }
      if (!check_rendezvous("collective", c, collective.members,
                            [](OpKind kind) { return kind == OpKind::collective; }) ||
          !check_devices(c)) {
        return false;
      }
    }
    if (referring != count_members(p_.collectives, [](auto& c) { return c.members; })) {
      return fail("{} ops refer to collectives that do not have them as members",
                  referring - std::min(referring, count_members(p_.collectives, [](auto& c) {
                                         return c.members;
                                       })));
    }
    return true;
  }

  /// The groups of a collective's parts have devices of each member and of nobody else.
  bool check_devices(std::size_t c) {
    const auto members = p_.members_of(p_.collectives[c].members);
    std::vector<std::pair<DeviceId, std::size_t>> owners;
    for (std::size_t m = 0; m < members.size(); ++m) {
      for (const DeviceId device : rank_of(p_.op(members[m])).devices)
        owners.push_back({device, m});
    }
    std::sort(owners.begin(), owners.end());
    std::vector<bool> seen(members.size());
    const auto& shape = p_.shape_of(p_.collectives[c]);
    for (const CollectiveShape::Part& part : shape.parts) {
      for (const DeviceId device : p_.group(part.group).devices) {
        const auto at =
            std::lower_bound(owners.begin(), owners.end(), std::pair(device, std::size_t{0}));
        if (at == owners.end() || at->first != device) {
          return fail("collective {} has device {}, which no member stands for", c, device.value);
        }
        seen[at->second] = true;
      }
    }
    const auto missing = std::find(seen.begin(), seen.end(), false);
    if (missing == seen.end()) return true;
    const std::size_t index = missing - seen.begin();
    return fail("collective {} has no device of {}", c, describe(members[index].index()));
  }

  bool check_op_groups() {
    std::size_t referring = 0;
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      if (!is_pass(op(i).kind) || op(i).match == kNone) continue;
      ++referring;
      if (!within(op(i).match, p_.op_groups)) return fail("{} has no op_group", describe(i));
    }
    for (std::size_t t = 0; t < p_.op_groups.size(); ++t) {
      if (!check_rendezvous("op_group", t, p_.op_groups[t], is_pass)) return false;
      const auto members = p_.members_of(p_.op_groups[t]);
      const Op& first = p_.op(members.front());
      for (const OpId id : members) {
        const Op& o = p_.op(id);
        if (std::tie(o.kind, o.micro_batch, o.inner) !=
                std::tie(first.kind, first.micro_batch, first.inner) ||
            o.inner == kNone) {
          return fail("op_group {}: {} and {} do not run the same", t, describe(members[0].index()),
                      describe(id.index()));
        }
        // Groups that hold experts together have segments of their own.
        const auto blocks = [&](const Op& member) {
          const auto& segment = p_.segment_of(member);
          return std::tuple(segment.pipeline, segment.stage, segment.first_block,
                            segment.last_block, segment.redundant);
        };
        if (blocks(o) != blocks(first)) {
          return fail("op_group {}: {} and {} pass other blocks", t, describe(members[0].index()),
                      describe(id.index()));
        }
      }
    }
    if (referring != count_members(p_.op_groups, [](auto& op_group) { return op_group; })) {
      return fail("ops refer to op_groups that do not have them as members");
    }
    return true;
  }

  bool check_dependencies() {
    const auto& begin = p_.dependency_begin;
    if (begin.size() != p_.ops.size() + 1 || begin.front() != 0 ||
        begin.back() != p_.dependencies.size() || !std::is_sorted(begin.begin(), begin.end())) {
      return fail("dependency_begin does not rise from 0 to the number of dependencies, {}",
                  p_.dependencies.size());
    }
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      for (const OpId before : p_.dependencies_of({static_cast<std::int32_t>(i)})) {
        if (!within(before.value, p_.ops)) {
          return fail("{} depends on op {}, which does not exist", describe(i), before.value);
        }
      }
    }
    return true;
  }

  const Program& p_;
  std::string problem_;
};

}  // namespace

std::string describe_op(const Program& program, std::size_t index) {
  const Op& op = program.ops[index];
  std::string text = fmt::format("op {} ({} of rank {}", index, name_of(op.kind), op.rank.value);
  if (op.micro_batch.valid()) text += fmt::format(", micro-batch {}", op.micro_batch.value);
  return text + ")";
}

std::string find_defect(const Program& program) {
  std::string defect = Checker(program).run();
  if (defect.empty()) defect = find_buffer_defect(program);
  if (defect.empty()) defect = find_order_defect(program);
  return defect;
}

}  // namespace orrery::ir
