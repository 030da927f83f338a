#include "planners/recovery/kit/restore_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "models/ir/names.h"
#include "models/lower/block_replicas.h"
#include "models/lower/placement.h"
#include "models/reshard/link_ranks.h"
#include "models/sharding/batched_send_receive.h"
#include "planners/recovery/kit/state_layouts.h"

namespace orrery::planners {
namespace {

using models::StatePart;

/// A plan and who holds what under it.
struct PlacedPlan {
  PlacedPlan(const ir::Plan& plan, const models::Cluster& cluster, const models::Workload& workload)
      : placement(models::place(plan, cluster, true)), copies(workload, placement) {}
  models::Placement placement;
  models::BlockReplicas copies;
};

/// Who needs a slice and who can give it: readers by copy of the view, ascending.
struct SliceParties {
  std::vector<int> receivers;
  std::vector<std::vector<int>> readers;
  auto operator<=>(const SliceParties&) const = default;
};

/// Peers of one source that serve some receivers of a slice.
struct PeerScan {
  StateSource source = StateSource::peer_gpu;
  std::size_t table = 0;
  std::vector<int> receivers;
};

/// How a slice with the same parties is always served.
struct SliceTable {
  struct Fixed {
    StateSource source;
    int receiver;
  };
  std::vector<Fixed> fixed;
  std::vector<PeerScan> scans;
  std::vector<int> unserved;
  Bytes bytes;  ///< Of all rows with these parties.
};

/// Chooses among peers with a slice in GPUs, host memories or NVMe.
struct PeerStore {
  PeerStore(const models::Cluster& cluster, const models::Topology& topology, ir::Location store)
      : ranks(cluster, topology, store), scan(ranks.heuristics()) {}
  models::LinkRanks ranks;
  models::SendScan scan;
};

/// Slices of a tensor that somebody needs, upwards.
struct CutTensor {
  std::int64_t length = 0;
  std::vector<std::pair<models::Slice, std::size_t>> slices;  ///< And their SliceTable.
};

class SliceServer {
 public:
  SliceServer(const RestoreView& view, const models::Topology& topology,
              const models::Workload& workload, const ir::Plan& to,
              const std::vector<int>& receivers, const RestoreOptions& options,
              const ServedShare& served)
      : view_(view),
        topology_(topology),
        workload_(workload),
        options_(options),
        served_(served),
        to_(to, view.cluster(), workload),
        receives_(static_cast<std::size_t>(view.cluster().size()), false),
        wanted_(static_cast<std::size_t>(workload.size()), false) {
    for (const int receiver : receivers) receives_[static_cast<std::size_t>(receiver)] = true;
    for (const ir::Plan* layout : view.layouts()) {
      layouts_.push_back(std::make_unique<PlacedPlan>(*layout, view.cluster(), workload));
    }
    mark_blocks(to);
  }

  UnservedShare serve() {
    for (std::int32_t b = 0; b < workload_.size(); ++b) {
      const BlockId block{b};
      if (!wanted_[block.index()]) continue;
      for (std::size_t p = 0; p < workload_.block(block).parameters.size(); ++p) {
        if (b > 0 && to_.copies.is_tied(block, p)) continue;  // Served with the embedding.
        for (const StatePart part : parts(block)) add_tensor(block, p, part);
      }
    }
    for (const SliceTable& table : tables_) {
      for (const SliceTable::Fixed& fixed : table.fixed) {
        served_(fixed.source, fixed.receiver, fixed.receiver, table.bytes);
      }
    }
    return unserved_;
  }

 private:
  using Key = std::tuple<std::int64_t, bool, bool, StatePart>;

  void mark_blocks(const ir::Stage& stage) {
    for (const ir::Segment& segment : stage.segments) {
      for (auto b = segment.first_block.index(); b <= segment.last_block.index(); ++b) {
        wanted_[b] = true;
      }
    }
  }

  /// Blocks of which a receiver needs anything, redundant copies of the next stage included.
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
    if (to_.copies.tied() && wanted_.back()) wanted_.front() = true;
  }

  std::vector<StatePart> parts(BlockId block) const {
    const auto alike = [&](const PlacedPlan& plan) {
      const ir::Zero& zero = plan.copies.zero(block);
      return divides(zero, StatePart::weights) == divides(zero, StatePart::optimizer);
    };
    const bool one = alike(to_) && std::all_of(layouts_.begin(), layouts_.end(),
                                               [&](const auto& plan) { return alike(*plan); });
    if (one) return {StatePart::all};
    std::vector<StatePart> out;
    if (options_.bytes.weight > 0) out.push_back(StatePart::weights);
    if (options_.bytes.optimizer() > 0) out.push_back(StatePart::optimizer);
    return out;
  }

  double bytes_of(StatePart part) const {
    switch (part) {
      case StatePart::weights:
        return options_.bytes.weight;
      case StatePart::optimizer:
        return options_.bytes.optimizer();
      case StatePart::all:
        break;
    }
    return options_.bytes.weight + options_.bytes.optimizer();
  }

  const CutTensor& cut(BlockId block, std::size_t parameter, StatePart part) {
    const bool like_current = current_.valid() && to_.copies.alike(block, current_) &&
                              std::all_of(layouts_.begin(), layouts_.end(), [&](const auto& plan) {
                                return plan->copies.alike(block, current_);
                              });
    if (!like_current) known_.clear();
    current_ = block;
    const models::Parameter& of = workload_.block(block).parameters[parameter];
    const Key key = {of.split_length, of.expert, to_.copies.is_tied(block, parameter), part};
    const auto [at, fresh] = known_.try_emplace(key);
    if (fresh) at->second = make_cut(block, parameter, part);
    return at->second;
  }

  models::Layout holdings(const PlacedPlan& plan, BlockId block, std::size_t parameter,
                          StatePart part) const {
    return plan.copies.holdings(block, parameter, divides(plan.copies.zero(block), part));
  }

  CutTensor make_cut(BlockId block, std::size_t parameter, StatePart part) {
    models::Layout need = holdings(to_, block, parameter, part);
    std::erase_if(need.pieces, [&](const models::Piece& piece) {
      return !receives_[static_cast<std::size_t>(piece.owner)];
    });
    CutTensor tensor;
    tensor.length = need.length;
    if (need.pieces.empty()) return tensor;
    std::vector<models::Layout> have;
    for (const auto& layout : layouts_) have.push_back(holdings(*layout, block, parameter, part));
    std::vector<std::int64_t> cuts = {0, need.length};
    const auto add_cuts = [&](const models::Layout& layout) {
      for (const models::Piece& piece : layout.pieces) {
        cuts.push_back(piece.slice.begin);
        cuts.push_back(piece.slice.end);
      }
    };
    add_cuts(need);
    for (const models::Layout& layout : have) add_cuts(layout);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<SliceParties> parties(cuts.size() - 1);
    fill(need, have, cuts, parties);
    for (std::size_t i = 0; i < parties.size(); ++i) {
      if (parties[i].receivers.empty()) continue;
      tensor.slices.emplace_back(models::Slice{cuts[i], cuts[i + 1]},
                                 number(std::move(parties[i])));
    }
    return tensor;
  }

  void fill(const models::Layout& need, const std::vector<models::Layout>& have,
            const std::vector<std::int64_t>& cuts, std::vector<SliceParties>& parties) const {
    const auto each = [&](const models::Slice& slice, auto visit) {
      auto i = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), slice.begin) -
                                        cuts.begin());
      for (; cuts[i] < slice.end; ++i) visit(parties[i]);
    };
    const std::size_t copies = view_.copies().size();
    for (SliceParties& at : parties) at.readers.resize(copies);
    for (const models::Piece& piece : need.pieces) {
      each(piece.slice, [&](SliceParties& at) { at.receivers.push_back(piece.owner); });
    }
    for (std::size_t c = 0; c < copies; ++c) {
      const ViewedCopy& copy = view_.copies()[c];
      for (const models::Piece& piece : have[copy.layout].pieces) {
        const int reader = copy.reader[static_cast<std::size_t>(piece.owner)];
        if (reader < 0) continue;
        each(piece.slice, [&](SliceParties& at) {
          if (!at.receivers.empty()) at.readers[c].push_back(reader);
        });
      }
    }
    for (SliceParties& at : parties) {
      const auto tidy = [](std::vector<int>& ids) {
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      };
      tidy(at.receivers);
      for (std::vector<int>& ids : at.readers) tidy(ids);
    }
  }

  std::size_t number(SliceParties parties) {
    const auto [at, fresh] = numbers_.try_emplace(std::move(parties), tables_.size());
    if (fresh) tables_.push_back(make_table(at->first));
    return at->second;
  }

  static bool is_peer(StateSource source) {
    return source == StateSource::peer_gpu || source == StateSource::peer_host ||
           source == StateSource::peer_nvme;
  }

  /// Of peers that give from one kind of store. Loads of GPUs, host memories and NVMe count apart.
  models::SendScan& scan_of(StateSource source) {
    std::unique_ptr<PeerStore>& store = stores_[static_cast<std::size_t>(source)];
    if (!store) {
      store = std::make_unique<PeerStore>(view_.cluster(), topology_, location_of(source));
    }
    return store->scan;
  }

  SliceTable make_table(const SliceParties& parties) {
    SliceTable table;
    std::vector<int> open = parties.receivers;
    for (const StateSource source : options_.order) {
      if (open.empty()) break;
      std::vector<int> owners;
      for (std::size_t c = 0; c < parties.readers.size(); ++c) {
        if (view_.copies()[c].location != location_of(source)) continue;
        owners.insert(owners.end(), parties.readers[c].begin(), parties.readers[c].end());
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

  /// Each returns the receivers that are left.
  std::vector<int> serve_from_own(StateSource source, const std::vector<int>& owners,
                                  const std::vector<int>& receivers, SliceTable& table) const {
    std::vector<int> left;
    for (const int receiver : receivers) {
      const bool there = std::any_of(owners.begin(), owners.end(), [&](int owner) {
        return view_.reaches(source, owner, receiver);
      });
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

  void add_tensor(BlockId block, std::size_t parameter, StatePart part) {
    const CutTensor& tensor = cut(block, parameter, part);
    const double elements =
        static_cast<double>(workload_.block(block).parameters[parameter].elements);
    for (const auto& [slice, number] : tensor.slices) {
      const double share =
          elements * static_cast<double>(slice.size()) / static_cast<double>(tensor.length);
      const Bytes bytes{share * bytes_of(part)};
      SliceTable& table = tables_[number];
      table.bytes += bytes;
      for (const PeerScan& scan : table.scans) {
        const std::vector<int>& senders = scan_of(scan.source).choose(scan.table, bytes.value);
        for (std::size_t i = 0; i < senders.size(); ++i) {
          served_(scan.source, senders[i], scan.receivers[i], bytes);
        }
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

  const RestoreView& view_;
  const models::Topology& topology_;
  const models::Workload& workload_;
  const RestoreOptions& options_;
  const ServedShare& served_;
  PlacedPlan to_;
  std::vector<std::unique_ptr<PlacedPlan>> layouts_;
  std::vector<bool> receives_;  ///< By device.
  std::vector<bool> wanted_;    ///< By block.
  BlockId current_;
  std::map<Key, CutTensor> known_;  ///< Of blocks like the current one.
  std::map<SliceParties, std::size_t> numbers_;
  std::vector<SliceTable> tables_;
  std::array<std::unique_ptr<PeerStore>, kStateSources> stores_;
  UnservedShare unserved_;
};

}  // namespace

UnservedShare serve_slices(const RestoreView& view, const models::Topology& topology,
                           const models::Workload& workload, const ir::Plan& to,
                           const std::vector<int>& receivers, const RestoreOptions& options,
                           const ServedShare& served) {
  return SliceServer(view, topology, workload, to, receivers, options, served).serve();
}

}  // namespace orrery::planners
