#include "planners/recovery/kit/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/lower/block_replicas.h"
#include "models/lower/placement.h"
#include "models/reshard/link_ranks.h"
#include "models/reshard/state_rows.h"
#include "models/sharding/batched_send_receive.h"
#include "planners/recovery/kit/state_layouts.h"

namespace orrery::planners {
namespace {

/// Which devices can read through a device from a source.
enum class Reach { device, other_device, node, other_node, all };

struct SourceTraits {
  const char* name;
  ir::Location location;
  Reach reach;
};

/// By StateSource.
constexpr std::array<SourceTraits, kStateSources> kSources = {{
    {"own GPU", ir::Location::peer, Reach::device},
    {"own host memory", ir::Location::host_memory, Reach::node},
    {"own NVMe", ir::Location::nvme, Reach::node},
    {"peer GPU", ir::Location::peer, Reach::other_device},
    {"peer host memory", ir::Location::host_memory, Reach::other_node},
    {"peer NVMe", ir::Location::nvme, Reach::other_node},
    {"cloud", ir::Location::cloud, Reach::all},
}};

Reach reach_of(StateSource source) { return kSources[index_of(source)].reach; }
bool is_peer(StateSource source) {
  return reach_of(source) == Reach::other_device || reach_of(source) == Reach::other_node;
}

/// A replica of the state without what it has lost.
struct ReadableReplica {
  ir::Location location = ir::Location::peer;
  std::size_t layout = 0;  ///< Index into RestoreView::layouts().
  /// By device id of the layout: the live device through which its share is read, -1 when it is
  /// gone or nobody reaches it. In the cloud the device itself.
  std::vector<int> reader;
  bool whole = false;  ///< Every share of the layout is there.
};

class RestoreView {
 public:
  /// Keeps references. A GPU's memory is reached while the device lives, host memory and NVMe
  /// while any device of the node does: through the device that stores it, else the first live one.
  RestoreView(const models::Cluster& cluster, const models::JobState& state,
              std::int64_t iteration);

  const models::Cluster& cluster() const { return cluster_; }
  const std::vector<ReadableReplica>& replicas() const { return copies_; }
  const std::vector<const ir::Plan*>& layouts() const { return layouts_; }
  /// What `receiver` may read from a reader of a replica in `location` by `source`.
  bool reaches(StateSource source, int reader, int receiver) const;

 private:
  int reader_of(ir::Location location, DeviceId stored_on) const;

  const models::Cluster& cluster_;
  IdVector<DeviceId, bool> live_;       ///< By device.
  IdVector<NodeId, int> live_of_node_;  ///< By node: its first live device, -1.
  std::vector<ReadableReplica> copies_;
  std::vector<const ir::Plan*> layouts_;
};

RestoreView::RestoreView(const models::Cluster& cluster, const models::JobState& state,
                         std::int64_t iteration)
    : cluster_(cluster), live_(cluster.size(), false), live_of_node_(cluster.nodes.size(), -1) {
  for (const DeviceId device : state.live) {
    live_[device] = true;
    int& first = live_of_node_[cluster.device(device).node];
    if (first < 0) first = device.value;
  }
  for (const models::StateReplica& replica : state.replicas) {
    if (replica.iteration != iteration || replica.layout == nullptr) continue;
    ReadableReplica viewed;
    viewed.location = replica.location;
    const auto known = std::find_if(layouts_.begin(), layouts_.end(), [&](const ir::Plan* layout) {
      return layout == replica.layout.get() || *layout == *replica.layout;
    });
    viewed.layout = known - layouts_.begin();
    if (known == layouts_.end()) layouts_.push_back(replica.layout.get());
    viewed.reader.assign(cluster.size(), -1);
    const std::vector<DeviceId> devices = ir::devices_of(*replica.layout);
    std::size_t gone = 0;
    std::size_t reached = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (gone < replica.lost_shards.size() && replica.lost_shards[gone] == i) {
        ++gone;
        continue;
      }
      const DeviceId stored_on = replica.stored_on.empty() ? devices[i] : replica.stored_on[i];
      int& reader = viewed.reader[devices[i].index()];
      reader = replica.location == ir::Location::cloud ? devices[i].value
                                                       : reader_of(replica.location, stored_on);
      if (reader >= 0) ++reached;
    }
    viewed.whole = reached == devices.size();
    copies_.push_back(std::move(viewed));
  }
}

int RestoreView::reader_of(ir::Location location, DeviceId stored_on) const {
  if (live_[stored_on]) return stored_on.value;
  if (location == ir::Location::peer) return -1;
  return live_of_node_[cluster_.device(stored_on).node];
}

bool RestoreView::reaches(StateSource source, int reader, int receiver) const {
  const auto same_node = [&] {
    return cluster_.device({reader}).node == cluster_.device({receiver}).node;
  };
  switch (reach_of(source)) {
    case Reach::device:
      return reader == receiver;
    case Reach::other_device:
      return reader != receiver;
    case Reach::node:
      return same_node();
    case Reach::other_node:
      return !same_node();
    case Reach::all:
      break;
  }
  return true;
}

/// Takes what is served: by which source, read through which device, for whom.
using ServedShare = std::function<void(StateSource source, int reader, int receiver, Bytes bytes)>;

struct UnservedShare {
  Bytes bytes;
  std::string witness;  ///< The first slice that nobody has.
};

/// A plan and who holds what under it.
struct PlacedPlan {
  PlacedPlan(const ir::Plan& plan, const models::Cluster& cluster, const models::Workload& workload)
      : placement(models::place(plan, cluster, true)), replicas(workload, placement) {}
  models::Placement placement;
  models::BlockReplicas replicas;
};

/// Peers of one source that serve some receivers of a slice.
struct PeerScan {
  StateSource source = StateSource::peer_gpu;
  std::size_t table = 0;
  std::vector<int> receivers;
};

/// How slices with the same holders are always served.
struct SliceTable {
  struct Fixed {
    StateSource source;
    int receiver;
  };
  std::vector<Fixed> fixed;
  std::vector<PeerScan> scans;
  std::vector<int> unserved;
  Bytes bytes;  ///< Of all rows with these holders.
};

/// Cuts the state that `receivers` (ascending, devices of `to`) need into the finest slices of all
/// layouts and serves each from the first source in the order that has it. Rows are those of
/// models/reshard/reshard_plan.h; peers are chosen by models/sharding/batched_send_receive.h and
/// the bandwidth of models/reshard/link_ranks.h, that of their host memory or NVMe included, with
/// loads that count over all rows, apart for GPUs, host memory and NVMe.
class SliceServer {
 public:
  SliceServer(const RestoreView& view, const PolicyInput& input, const ir::Plan& to,
              const std::vector<int>& receivers, const RestoreOptions& options, ServedShare served)
      : view_(view),
        input_(input),
        workload_(input.workload),
        options_(options),
        served_(std::move(served)),
        to_(to, view.cluster(), workload_),
        receives_(flags(receivers)),
        wanted_(workload_.size(), false),
        slices_(workload_, sources(), to_.replicas, receives_) {
    mark_blocks(to);
  }

  UnservedShare serve() {
    for (std::int32_t b = 0; b < workload_.size(); ++b) {
      const BlockId block{b};
      if (!wanted_[block.index()]) continue;
      for (std::size_t p = 0; p < workload_.block(block).parameters.size(); ++p) {
        if (b > 0 && to_.replicas.is_tied(block, p)) continue;  // Served with the embedding.
        for (const models::StatePart part : slices_.parts(block, options_.bytes)) {
          add_tensor(block, p, part);
        }
      }
      ask_peers();
    }
    for (const SliceTable& table : tables_) {
      for (const SliceTable::Fixed& fixed : table.fixed) {
        served_(fixed.source, fixed.receiver, fixed.receiver, table.bytes);
      }
    }
    return unserved_;
  }

 private:
  std::vector<bool> flags(const std::vector<int>& devices) const {
    std::vector<bool> out(view_.cluster().size(), false);
    for (const int device : devices) out[device] = true;
    return out;
  }

  /// One for each replica of the view.
  std::vector<models::SliceSource> sources() {
    for (const ir::Plan* layout : view_.layouts()) {
      layouts_.push_back(std::make_unique<PlacedPlan>(*layout, view_.cluster(), workload_));
    }
    std::vector<models::SliceSource> out;
    for (const ReadableReplica& replica : view_.replicas()) {
      out.push_back({&layouts_[replica.layout]->replicas, replica.reader});
    }
    return out;
  }

  void mark_blocks(const ir::Stage& stage) {
    for (const ir::Segment& segment : stage.segments) {
      for (auto b = segment.first_block.index(); b <= segment.last_block.index(); ++b) {
        wanted_[b] = true;
      }
    }
  }

  /// Blocks of which a receiver needs anything, redundant replicas of the next stage included.
  void mark_blocks(const ir::Plan& to) {
    for (const ir::Pipeline& pipeline : to.pipelines) {
      for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
        const std::vector<DeviceId> devices = ir::devices_of(pipeline.stages[s]);
        if (std::none_of(devices.begin(), devices.end(),
                         [&](DeviceId device) { return receives_[device.index()]; })) {
          continue;
        }
        mark_blocks(pipeline.stages[s]);
        if (to.redundancy == ir::Redundancy::none) continue;
        mark_blocks(pipeline.stages[(s + 1) % pipeline.stages.size()]);
      }
    }
    if (to_.replicas.tied() && wanted_.back()) wanted_.front() = true;
  }

  /// Peers of one kind of store. Loads of GPUs, host memories and NVMe count apart.
  models::SendScan& scan_of(StateSource source) {
    std::unique_ptr<models::SendScan>& scan = scans_[index_of(source)];
    if (!scan) {
      models::LinkRanks& ranks = input_.memory->ranks(input_, location_of(source));
      scan = std::make_unique<models::SendScan>(ranks.heuristics());
    }
    return *scan;
  }

  SliceTable& table_of(const models::HeldSlice& slice) {
    while (tables_.size() < slices_.holders().size()) {
      tables_.push_back(make_table(slices_.holders()[tables_.size()]));
    }
    return tables_[slice.holders];
  }

  SliceTable make_table(const models::SliceHolders& holders) {
    SliceTable table;
    std::vector<int> open = holders.required;
    for (const StateSource source : options_.order) {
      if (open.empty()) break;
      std::vector<int> owners;
      for (std::size_t r = 0; r < holders.readers.size(); ++r) {
        if (view_.replicas()[r].location != location_of(source)) continue;
        owners.insert(owners.end(), holders.readers[r].begin(), holders.readers[r].end());
      }
      if (owners.empty()) continue;
      std::sort(owners.begin(), owners.end());
      owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
      open = is_peer(source) ? serve_from_peers(source, owners, open, table)
                             : serve_from_own(source, owners, open, table);
    }
    table.unserved = std::move(open);
    return table;
  }

  /// Each returns the receivers that are left. `owners` ascend.
  std::vector<int> serve_from_own(StateSource source, const std::vector<int>& owners,
                                  const std::vector<int>& receivers, SliceTable& table) const {
    const Reach reach = reach_of(source);
    // What a receiver must have in common with an owner: its node, or itself.
    const auto place = [&](int device) {
      return reach == Reach::node ? view_.cluster().device({device}).node.value : device;
    };
    std::vector<int> places;
    for (const int owner : owners) places.push_back(place(owner));
    std::sort(places.begin(), places.end());
    std::vector<int> left;
    for (const int receiver : receivers) {
      const bool there =
          reach == Reach::all || std::binary_search(places.begin(), places.end(), place(receiver));
      if (there) {
        table.fixed.push_back({source, receiver});
      } else {
        left.push_back(receiver);
      }
    }
    return left;
  }

  std::vector<int> serve_from_peers(StateSource source, const std::vector<int>& owners,
                                    const std::vector<int>& receivers, SliceTable& table) {
    std::map<std::vector<int>, std::vector<int>> by_owners;
    std::vector<int> left;
    for (const int receiver : receivers) {
      std::vector<int> usable;
      for (const int owner : owners) {
        if (view_.reaches(source, owner, receiver)) usable.push_back(owner);
      }
      if (usable.empty()) {
        left.push_back(receiver);
      } else {
        by_owners[std::move(usable)].push_back(receiver);
      }
    }
    for (auto& [usable, group] : by_owners) {
      const std::size_t number = scan_of(source).add(usable, group);
      table.scans.push_back({source, number, std::move(group)});
    }
    return left;
  }

  void add_tensor(BlockId block, std::size_t parameter, models::StatePart part) {
    const models::TensorRows& tensor = slices_.rows(block, parameter, part);
    const double elements =
        static_cast<double>(workload_.block(block).parameters[parameter].elements);
    for (const models::HeldSlice& held : tensor.slices) {
      const models::Slice& slice = held.slice;
      const double share =
          elements * static_cast<double>(slice.size()) / static_cast<double>(tensor.length);
      const Bytes bytes{share * models::bytes_of(part, options_.bytes)};
      SliceTable& table = table_of(held);
      table.bytes += bytes;
      const auto alike = std::find_if(waiting_.begin(), waiting_.end(),
                                      [&](const auto& each) { return each.first == held.holders; });
      if (alike == waiting_.end()) {
        waiting_.emplace_back(held.holders, bytes);
      } else {
        alike->second += bytes;
      }
      if (table.unserved.empty()) continue;
      unserved_.bytes += bytes * static_cast<double>(table.unserved.size());
      if (unserved_.witness.empty()) {
        unserved_.witness = fmt::format(
            "{} of parameter {} of block {} ({}), slice {} to {} of {}, which device {} needs",
            models::name_of(part), workload_.block(block).parameters[parameter].name, block.value,
            ir::name_of(workload_.block(block).kind), slice.begin, slice.end, tensor.length,
            table.unserved.front());
      }
    }
  }

  /// What a block has in slices that lie alike goes as a whole from one peer, as in a fused switch.
  void ask_peers() {
    for (const auto& [table, bytes] : waiting_) {
      for (const PeerScan& scan : tables_[table].scans) {
        const std::vector<int>& senders = scan_of(scan.source).choose(scan.table, bytes.value);
        for (std::size_t i = 0; i < senders.size(); ++i) {
          served_(scan.source, senders[i], scan.receivers[i], bytes);
        }
      }
    }
    waiting_.clear();
  }

  const RestoreView& view_;
  const PolicyInput& input_;
  const models::Workload& workload_;
  const RestoreOptions& options_;
  ServedShare served_;
  PlacedPlan to_;
  std::vector<std::unique_ptr<PlacedPlan>> layouts_;
  std::vector<bool> receives_;  ///< By device.
  std::vector<bool> wanted_;    ///< By block.
  models::StateTables slices_;
  std::vector<SliceTable> tables_;  ///< By index into slices_.holders().
  std::array<std::unique_ptr<models::SendScan>, kStateSources> scans_;
  UnservedShare unserved_;
  std::vector<std::pair<std::size_t, Bytes>> waiting_;  ///< Of a block, by index into tables_.
};

/// Finds for single devices a source that has their whole share.
class WholeShares {
 public:
  WholeShares(const RestoreView& view, const ir::Plan& to, const RestoreOptions& options)
      : view_(view), options_(options) {
    const int devices = view.cluster().size();
    for (const ir::Plan* layout : view.layouts()) {
      std::vector<int>& twin = twins_.emplace_back(devices, -1);
      if (const auto forward = same_shares(*layout, to, devices)) {
        for (std::size_t d = 0; d < forward->size(); ++d) {
          if ((*forward)[d] >= 0) twin[(*forward)[d]] = static_cast<int>(d);
        }
        continue;
      }
      const std::vector<bool> same = unchanged_shares(*layout, to, devices);
      for (std::size_t d = 0; d < same.size(); ++d) {
        if (same[d]) twin[d] = static_cast<int>(d);
      }
    }
    for (const ReadableReplica& replica : view.replicas()) {
      Readers& all = readers_[replica.location];
      all.device.resize(devices, false);
      all.node.resize(view.cluster().nodes.size(), false);
      for (const int reader : replica.reader) {
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
      for (std::size_t c = 0; c < view_.replicas().size(); ++c) {
        if (gives_whole(c, source, receiver)) return {Answer::whole, source};
      }
      if (may_have(source, receiver)) return {Answer::parts, source};
    }
    return {Answer::nothing, StateSource::cloud};
  }

 private:
  /// Through whom replicas of one location are read.
  struct Readers {
    std::vector<bool> device;
    IdVector<NodeId, bool> node;
    std::size_t devices = 0;
    std::size_t nodes = 0;
    void add(int reader, NodeId of) {
      if (!device[reader]) ++devices;
      device[reader] = true;
      if (!node[of]) ++nodes;
      node[of] = true;
    }
  };

  /// Peers are chosen slice by slice.
  bool gives_whole(std::size_t replica, StateSource source, int receiver) const {
    const ReadableReplica& of = view_.replicas()[replica];
    if (of.location != location_of(source)) return false;
    if (source == StateSource::cloud && of.whole) return true;
    const int twin = twins_[of.layout][receiver];
    if (is_peer(source) || twin < 0) return false;
    const int reader = of.reader[twin];
    return reader >= 0 && view_.reaches(source, reader, receiver);
  }

  bool may_have(StateSource source, int receiver) const {
    const auto found = readers_.find(location_of(source));
    if (found == readers_.end()) return false;
    const Readers& all = found->second;
    const bool own = all.device[receiver];
    const bool own_node = all.node[view_.cluster().device({receiver}).node];
    switch (reach_of(source)) {
      case Reach::device:
        return own;
      case Reach::other_device:
        return all.devices > (own ? 1U : 0U);
      case Reach::node:
        return own_node;
      case Reach::other_node:
        return all.nodes > (own_node ? 1U : 0U);
      case Reach::all:
        break;
    }
    return all.devices > 0;
  }

  const RestoreView& view_;
  const RestoreOptions& options_;
  /// By layout: device of the plan -> device of the layout with the same share, -1: not known.
  std::vector<std::vector<int>> twins_;
  std::map<ir::Location, Readers> readers_;
};

/// Adds up what goes from where to where.
class TransferSums {
 public:
  void add(StateSource source, int reader, int receiver, Bytes bytes) {
    if (bytes.value <= 0) return;
    from[index_of(source)] += bytes;
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

std::vector<std::pair<StateSource, const char*>> enum_names(StateSource) {
  return {{StateSource::own_gpu, "own_gpu"},     {StateSource::own_host, "own_host"},
          {StateSource::own_nvme, "own_nvme"},   {StateSource::peer_gpu, "peer_gpu"},
          {StateSource::peer_host, "peer_host"}, {StateSource::peer_nvme, "peer_nvme"},
          {StateSource::cloud, "cloud"}};
}
const char* name_of(StateSource source) { return kSources[index_of(source)].name; }
ir::Location location_of(StateSource source) { return kSources[index_of(source)].location; }

std::vector<Bytes> state_shares(const PolicyInput& input, const ir::Plan& plan,
                                const models::ReshardBytes& bytes) {
  const StateMemory::Answer known = input.memory->sizes_of(input, plan, bytes);
  std::vector<double> by_device(input.cluster.size(), 0);
  for (std::size_t d = 0; d < known.to.size(); ++d) {
    if (known.to[d] < 0) continue;
    by_device[known.to[d]] = known.sizes->of_device[d];
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
        SliceServer(view, input, to, sliced, options,
                    [&](StateSource source, int reader, int receiver, Bytes bytes) {
                      sums.add(source, reader, receiver, bytes);
                    })
            .serve();
    restore.missing += unserved.bytes;
    restore.witness = std::move(unserved.witness);
  }
  restore.from = sums.from;
  restore.transfers = sums.take();
  return restore;
}

std::optional<NewestRestore> newest_restore(const PolicyInput& input, const models::JobState& state,
                                            const ir::Plan& to,
                                            const std::vector<StateSource>& order,
                                            const models::ReshardBytes& bytes) {
  std::optional<std::int64_t> last;
  for (const models::StateReplica& replica : state.replicas) {
    if (last == replica.iteration) continue;
    last = replica.iteration;
    Restore restore = plan_restore(input, state, to, {replica.iteration, order, bytes});
    if (restore.complete()) return NewestRestore{replica.iteration, std::move(restore)};
  }
  return std::nullopt;
}

}  // namespace orrery::planners
