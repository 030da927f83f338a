#include "planners/recovery/kit/restore.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "planners/recovery/kit/restore_slices.h"
#include "planners/recovery/kit/restore_view.h"
#include "planners/recovery/kit/state_layouts.h"

namespace orrery::planners {
namespace {

/// Finds for single devices a source that has their whole share.
class WholeShares {
 public:
  WholeShares(const RestoreView& view, const ir::Plan& to, const RestoreOptions& options)
      : view_(view), options_(options) {
    const int devices = view.cluster().size();
    std::vector<std::optional<std::vector<int>>> inverse;
    for (const ir::Plan* layout : view.layouts()) {
      auto& at = inverse.emplace_back();
      const auto forward = same_shares(*layout, to, devices);
      if (!forward) continue;
      at.emplace(static_cast<std::size_t>(devices), -1);
      for (std::size_t d = 0; d < forward->size(); ++d) {
        if ((*forward)[d] >= 0)
          (*at)[static_cast<std::size_t>((*forward)[d])] = static_cast<int>(d);
      }
    }
    for (const ViewedCopy& copy : view.copies()) matches_.push_back(inverse[copy.layout]);
    for (const ViewedCopy& copy : view.copies()) {
      Readers& all = readers_[copy.location];
      all.device.resize(static_cast<std::size_t>(devices), false);
      all.node.resize(view.cluster().nodes.size(), false);
      for (const int reader : copy.reader) {
        if (reader < 0) continue;
        all.add(reader, view.cluster().device({reader}).node);
      }
    }
  }

  enum class Answer { whole, parts, nothing };
  /// The source that gives `receiver` all that it needs, or whether parts of it are to be looked
  /// for.
  std::pair<Answer, StateSource> find(int receiver) const {
    for (const StateSource source : options_.order) {
      for (std::size_t c = 0; c < matches_.size(); ++c) {
        if (gives_whole(c, source, receiver)) return {Answer::whole, source};
      }
      if (may_have(source, receiver)) return {Answer::parts, source};
    }
    return {Answer::nothing, StateSource::cloud};
  }

 private:
  /// Through whom copies of one location are read.
  struct Readers {
    std::vector<bool> device;
    std::vector<bool> node;
    std::size_t devices = 0;
    std::size_t nodes = 0;
    void add(int reader, NodeId of) {
      if (!device[static_cast<std::size_t>(reader)]) ++devices;
      device[static_cast<std::size_t>(reader)] = true;
      if (!node[of.index()]) ++nodes;
      node[of.index()] = true;
    }
  };

  /// Peers are chosen slice by slice.
  bool gives_whole(std::size_t copy, StateSource source, int receiver) const {
    const ViewedCopy& of = view_.copies()[copy];
    if (of.location != location_of(source)) return false;
    if (source == StateSource::cloud && of.whole) return true;
    if (source == StateSource::peer_gpu || source == StateSource::peer_host ||
        source == StateSource::peer_nvme || !matches_[copy]) {
      return false;
    }
    const int position = (*matches_[copy])[static_cast<std::size_t>(receiver)];
    const int reader = of.reader[static_cast<std::size_t>(position)];
    return reader >= 0 && view_.reaches(source, reader, receiver);
  }

  bool may_have(StateSource source, int receiver) const {
    const auto found = readers_.find(location_of(source));
    if (found == readers_.end()) return false;
    const Readers& all = found->second;
    const bool own = all.device[static_cast<std::size_t>(receiver)];
    const bool own_node = all.node[view_.cluster().device({receiver}).node.index()];
    switch (source) {
      case StateSource::own_gpu:
        return own;
      case StateSource::own_host:
      case StateSource::own_nvme:
        return own_node;
      case StateSource::peer_gpu:
        return all.devices > (own ? 1U : 0U);
      case StateSource::peer_host:
      case StateSource::peer_nvme:
        return all.nodes > (own_node ? 1U : 0U);
      case StateSource::cloud:
        break;
    }
    return all.devices > 0;
  }

  const RestoreView& view_;
  const RestoreOptions& options_;
  /// By copy: device of the plan -> device of the copy's layout with the same share.
  std::vector<std::optional<std::vector<int>>> matches_;
  std::map<ir::Location, Readers> readers_;
};

/// Adds up what goes from where to where.
class TransferSums {
 public:
  void add(StateSource source, int reader, int receiver, Bytes bytes) {
    if (bytes.value <= 0) return;
    from[static_cast<std::size_t>(source)] += bytes;
    if (source == StateSource::own_gpu) return;
    const int through = source == StateSource::cloud ? -1 : reader;
    parts_.push_back({location_of(source), ir::Location::peer, {through}, {receiver}, bytes});
    if (parts_.size() > limit_) {
      merge();
      limit_ = std::max(limit_, 2 * parts_.size());
    }
  }
  std::vector<models::StateTransfer> take() {
    merge();
    return std::move(parts_);
  }

  std::array<Bytes, kStateSources> from{};

 private:
  void merge() {
    const auto key = [](const models::StateTransfer& t) {
      return std::tuple(t.from, t.source, t.destination);
    };
    std::stable_sort(parts_.begin(), parts_.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
    std::vector<models::StateTransfer> out;
    for (const models::StateTransfer& part : parts_) {
      if (!out.empty() && key(out.back()) == key(part)) {
        out.back().bytes += part.bytes;
      } else {
        out.push_back(part);
      }
    }
    parts_ = std::move(out);
  }

  std::vector<models::StateTransfer> parts_;
  std::size_t limit_ = 1 << 16;
};

}  // namespace

const char* name_of(StateSource source) {
  switch (source) {
    case StateSource::own_gpu:
      return "own GPU";
    case StateSource::own_host:
      return "own host memory";
    case StateSource::own_nvme:
      return "own NVMe";
    case StateSource::peer_gpu:
      return "peer GPU";
    case StateSource::peer_host:
      return "peer host memory";
    case StateSource::peer_nvme:
      return "peer NVMe";
    case StateSource::cloud:
      break;
  }
  return "cloud";
}

std::vector<Bytes> state_shares(const PolicyInput& input, const ir::Plan& plan,
                                const models::ReshardBytes& bytes) {
  const StateMemory::Answer known = input.memory->sizes_of(input, plan, bytes);
  std::vector<double> by_device(static_cast<std::size_t>(input.cluster.size()), 0);
  for (std::size_t d = 0; d < known.to.size(); ++d) {
    if (known.to[d] < 0) continue;
    by_device[static_cast<std::size_t>(known.to[d])] = known.sizes->of_device[d];
  }
  std::vector<Bytes> out;
  for (const DeviceId device : ir::devices_of(plan)) out.push_back({by_device[device.index()]});
  return out;
}

Restore plan_restore(const PolicyInput& input, const models::JobState& state, const ir::Plan& to,
                     const RestoreOptions& options) {
  using Answer = WholeShares::Answer;
  const RestoreView view(input.cluster, state, options.iteration);
  const WholeShares whole(view, to, options);
  const std::vector<DeviceId> devices = ir::devices_of(to);
  const std::vector<Bytes> shares = state_shares(input, to, options.bytes);
  Restore restore;
  TransferSums sums;
  std::vector<int> sliced;
  bool witnessed = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto [answer, source] = whole.find(devices[i].value);
    if (answer == Answer::whole) {
      sums.add(source, devices[i].value, devices[i].value, shares[i]);
    } else if (answer == Answer::parts || (!witnessed && shares[i].value > 0)) {
      witnessed = witnessed || answer == Answer::nothing;
      sliced.push_back(devices[i].value);
    } else {
      restore.missing += shares[i];
    }
  }
  if (!sliced.empty()) {
    UnservedShare unserved =
        serve_slices(view, input.topology, input.workload, to, sliced, options,
                     [&](StateSource source, int reader, int receiver, Bytes bytes) {
                       sums.add(source, reader, receiver, bytes);
                     });
    restore.missing += unserved.bytes;
    restore.witness = std::move(unserved.witness);
  }
  restore.from = sums.from;
  restore.transfers = sums.take();
  return restore;
}

std::optional<NewestRestore> plan_newest_restore(const PolicyInput& input,
                                                 const models::JobState& state, const ir::Plan& to,
                                                 const std::vector<StateSource>& order,
                                                 const models::ReshardBytes& bytes) {
  std::optional<std::int64_t> last;
  for (const models::StateReplica& copy : state.replicas) {
    if (last == copy.iteration) continue;
    last = copy.iteration;
    Restore restore = plan_restore(input, state, to, {copy.iteration, order, bytes});
    if (restore.complete()) return NewestRestore{copy.iteration, std::move(restore)};
  }
  return std::nullopt;
}

std::optional<std::int64_t> newest_restorable(const PolicyInput& input,
                                              const models::JobState& state, const ir::Plan& to,
                                              const std::vector<StateSource>& order,
                                              const models::ReshardBytes& bytes) {
  const auto newest = plan_newest_restore(input, state, to, order, bytes);
  return newest ? std::optional(newest->iteration) : std::nullopt;
}

}  // namespace orrery::planners
