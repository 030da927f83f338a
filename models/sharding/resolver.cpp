#include "models/sharding/resolver.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace orrery::models {
namespace {

std::vector<int> sorted(std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  return devices;
}

bool is_among(const std::vector<int>& sorted_devices, int device) {
  return std::binary_search(sorted_devices.begin(), sorted_devices.end(), device);
}

/// Devices by summand: those of summand k are devices[begin[k]] up to devices[begin[k + 1]].
struct BySummand {
  std::vector<int> devices;
  std::vector<std::size_t> begin{0};

  std::size_t summands() const { return begin.size() - 1; }
  std::size_t count(std::size_t k) const { return begin[k + 1] - begin[k]; }
  int at(std::size_t k, std::size_t i) const { return devices[begin[k] + i]; }
};

class SliceResolver {
 public:
  SliceResolver(const std::vector<FinestSlice>& slices, const ResolveOptions& options)
      : slices_(slices), options_(options), one_(options.copies == Copies::one_takes_part) {}

  std::variant<ResolvedSlices, UnreducedSlice> run() {
    for (std::uint32_t i = 0; i < slices_.size(); ++i) {
      const std::vector<Holder>& from = slices_[i].from;
      for (std::size_t h = 0; !one_ && h < from.size(); ++h) {
        first_held_.try_emplace(from[h].device, i);
      }
      const bool sums = !from.empty() && from.front().summand != from.back().summand;
      if (!sums) {
        move(i);
      } else if (!add_up(i)) {
        return UnreducedSlice{i};
      }
    }
    for (const auto& [to, parts] : gathers_) gather(to, parts);
    for (const SliceSend& send : plan_sends(send_rows_, options_.sends).sends) {
      sends().push_back(
          {StepKind::send_receive, send_slices_[send.row], {send.source, send.destination}, -1});
    }
    return std::move(steps_);
  }

 private:
  std::vector<SliceStep>& reductions() { return steps_[0]; }
  std::vector<SliceStep>& spreads() { return steps_[1]; }
  std::vector<SliceStep>& sends() { return steps_[2]; }

  bool add_up(std::uint32_t i);
  bool scatter(std::uint32_t i, const BySummand& members, const std::vector<int>& needing);
  void pass_on_sum(std::uint32_t i, const BySummand& members, const std::vector<int>& needing,
                   std::vector<int> done);
  void move(std::uint32_t i);
  std::vector<std::vector<int>> gather_groups(const std::vector<int>& to) const;
  void gather(const std::vector<int>& to, const std::vector<std::uint32_t>& parts);
  void broadcast(std::uint32_t i, int source, const std::vector<int>& receivers);
  void send(std::uint32_t i, std::vector<int> owners);

  const std::vector<FinestSlice>& slices_;
  const ResolveOptions& options_;
  bool one_;
  std::map<int, std::uint32_t> first_held_;  ///< By device; devices that hold the same are copies.
  ResolvedSlices steps_;
  std::map<std::vector<int>, std::size_t> gather_index_;  ///< FinestSlice::to -> gathers_.
  std::vector<std::pair<std::vector<int>, std::vector<std::uint32_t>>> gathers_;
  std::vector<SliceRow> send_rows_;
  std::vector<std::uint32_t> send_slices_;  ///< By row.
};

/// Those who take part in a reduction: all holders, or one of each summand, the first that needs
/// the result, else the first.
BySummand members_of(const std::vector<Holder>& from, const std::vector<int>& needing, bool one) {
  BySummand members;
  bool chosen_needs = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool fresh = i == 0 || from[i].summand != from[i - 1].summand;
    if (fresh && i > 0) members.begin.push_back(members.devices.size());
    if (fresh || !one) {
      members.devices.push_back(from[i].device);
      chosen_needs = one && is_among(needing, from[i].device);
    } else if (!chosen_needs && is_among(needing, from[i].device)) {
      members.devices.back() = from[i].device;
      chosen_needs = true;
    }
  }
  members.begin.push_back(members.devices.size());
  return members;
}

bool SliceResolver::add_up(std::uint32_t i) {
  const FinestSlice& slice = slices_[i];
  const std::vector<int> needing = sorted(slice.to);
  const BySummand members = members_of(slice.from, needing, one_);
  std::vector<int> reduced;
  for (const int device : members.devices) {
    if (is_among(needing, device)) reduced.push_back(device);
  }
  if (reduced.empty()) return false;
  const bool everywhere = one_ ? reduced.size() > 1 : reduced.size() == members.devices.size();
  if (everywhere) {
    std::size_t groups = 0;
    for (std::size_t k = 0; k < members.summands(); ++k) {
      groups = std::max(groups, members.count(k));
    }
    for (std::size_t g = 0; g < groups; ++g) {
      SliceStep step{StepKind::all_reduce, i, {}, -1};
      for (std::size_t k = 0; k < members.summands(); ++k) {
        step.group.push_back(members.at(k, g % members.count(k)));
      }
      reductions().push_back(std::move(step));
    }
    reduced = members.devices;
  } else if (!scatter(i, members, needing)) {
    return false;
  }
  reduced = sorted(std::move(reduced));
  if (std::includes(reduced.begin(), reduced.end(), needing.begin(), needing.end())) return true;
  if (one_) pass_on_sum(i, members, needing, std::move(reduced));
  return one_;
}

/// Each member that needs the slice keeps it. Its group has the copies of the same number of the
/// other summands, which must not need it.
bool SliceResolver::scatter(std::uint32_t i, const BySummand& members,
                            const std::vector<int>& needing) {
  for (std::size_t own = 0; own < members.summands(); ++own) {
    for (std::size_t copy = 0; copy < members.count(own); ++copy) {
      const int root = members.at(own, copy);
      if (!is_among(needing, root)) continue;
      SliceStep step{StepKind::reduce_scatter, i, {}, root};
      for (std::size_t k = 0; k < members.summands(); ++k) {
        const int member = members.at(k, copy % members.count(k));
        if (k != own && is_among(needing, member)) return false;
        step.group.push_back(member);
      }
      reductions().push_back(std::move(step));
    }
  }
  return true;
}

/// From those who have the sum: to the other holders of their summands, then to all that need it.
void SliceResolver::pass_on_sum(std::uint32_t i, const BySummand& members,
                                const std::vector<int>& needing, std::vector<int> done) {
  std::vector<int> have = done;
  auto holder = slices_[i].from.begin();
  for (const int member : members.devices) {
    std::vector<int> receivers;
    const int summand = holder->summand;
    for (; holder != slices_[i].from.end() && holder->summand == summand; ++holder) {
      if (is_among(needing, holder->device) && !is_among(done, holder->device)) {
        receivers.push_back(holder->device);
      }
    }
    broadcast(i, member, receivers);
    have.insert(have.end(), receivers.begin(), receivers.end());
  }
  send(i, sorted(std::move(have)));
}

void SliceResolver::move(std::uint32_t i) {
  const std::vector<int>& to = slices_[i].to;
  std::vector<int> owners;
  for (const Holder& holder : slices_[i].from) owners.push_back(holder.device);
  const auto needed = [&](int owner) { return std::find(to.begin(), to.end(), owner) != to.end(); };
  const bool gathers = options_.gather_and_broadcast && (!one_ || owners.size() == 1) &&
                       to.size() > owners.size() &&
                       std::all_of(owners.begin(), owners.end(), needed);
  if (!gathers) return send(i, std::move(owners));
  const auto [at, fresh] = gather_index_.try_emplace(to, gathers_.size());
  if (fresh) gathers_.push_back({to, {}});
  gathers_[at->second].second.push_back(i);
}

/// `to` in groups that have one copy of each part; one group where there are no copies.
std::vector<std::vector<int>> SliceResolver::gather_groups(const std::vector<int>& to) const {
  if (one_) return {to};
  std::map<std::uint32_t, std::vector<int>> copies;  // By the first slice that they hold.
  std::size_t most = 0;
  for (const int device : to) {
    const auto held = first_held_.find(device);
    if (held == first_held_.end()) return {};
    std::vector<int>& same = copies[held->second];
    same.push_back(device);
    most = std::max(most, same.size());
  }
  std::vector<std::vector<int>> groups(most);
  for (std::size_t g = 0; g < most; ++g) {
    std::copy_if(to.begin(), to.end(), std::back_inserter(groups[g]), [&](int device) {
      const std::vector<int>& same = copies.at(first_held_.at(device));
      return same[g % same.size()] == device;
    });
  }
  return groups;
}

void SliceResolver::gather(const std::vector<int>& to, const std::vector<std::uint32_t>& parts) {
  const auto owner = [&](std::uint32_t i) { return slices_[i].from.front().device; };
  const bool one_owner = std::all_of(parts.begin(), parts.end(), [&](std::uint32_t i) {
    return slices_[i].from.size() == 1 && owner(i) == owner(parts.front());
  });
  if (one_ && one_owner) {
    std::vector<int> receivers = to;
    std::erase(receivers, owner(parts.front()));
    for (const std::uint32_t i : parts) broadcast(i, owner(i), receivers);
    return;
  }
  const auto groups = gather_groups(to);
  for (const std::uint32_t i : parts) {
    const std::vector<Holder>& copies = slices_[i].from;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const int root = copies[g % copies.size()].device;
      spreads().push_back({StepKind::all_gather, i, groups[g], root});
    }
  }
}

void SliceResolver::broadcast(std::uint32_t i, int source, const std::vector<int>& receivers) {
  if (receivers.empty()) return;
  std::vector<int> group{source};
  group.insert(group.end(), receivers.begin(), receivers.end());
  const bool pair = receivers.size() == 1;
  spreads().push_back(
      {pair ? StepKind::send_receive : StepKind::broadcast, i, std::move(group), -1});
}

void SliceResolver::send(std::uint32_t i, std::vector<int> owners) {
  const std::vector<int> known = sorted(owners);
  const std::vector<int>& to = slices_[i].to;
  if (std::all_of(to.begin(), to.end(), [&](int device) { return is_among(known, device); }))
    return;
  if (one_) owners = known;  // Among equal loads the lowest id sends.
  send_rows_.push_back({slices_[i].size, std::move(owners), slices_[i].to});
  send_slices_.push_back(i);
}

}  // namespace

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::send_receive:
      return "send_receive";
    case StepKind::all_reduce:
      return "all_reduce";
    case StepKind::reduce_scatter:
      return "reduce_scatter";
    case StepKind::all_gather:
      return "all_gather";
    case StepKind::broadcast:
      return "broadcast";
  }
  return "unknown";
}

std::variant<ResolvedSlices, UnreducedSlice> resolve_slices(const std::vector<FinestSlice>& slices,
                                                            const ResolveOptions& options) {
  return SliceResolver(slices, options).run();
}

}  // namespace orrery::models
