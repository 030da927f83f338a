#include "models/reshard/reshard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/reshard/link_ranks.h"
#include "models/reshard/state_rows.h"

namespace orrery::models {
namespace {

std::vector<DeviceId> device_ids(const std::vector<int>& ids) {
  std::vector<DeviceId> out;
  for (const int id : ids) out.push_back({id});
  return out;
}

class ReshardPlanner {
 public:
  ReshardPlanner(const ir::Plan& from, const ir::Plan& to, const Cluster& cluster,
                 const Topology& topology, const Workload& workload, const ReshardOptions& options)
      : workload_(workload),
        options_(options),
        fused_(options.variant == ReshardVariant::fused ||
               options.variant == ReshardVariant::fused_by_tensor),
        paths_(cluster, topology),
        from_place_(place(from, cluster, true)),
        to_place_(place(to, cluster, true)),
        from_(workload, from_place_),
        to_(workload, to_place_),
        tables_(workload, {{&from_, readers(cluster, false)}, {&from_, readers(cluster, true)}},
                to_, std::vector<bool>(cluster.size(), true)),
        scan_(batched_options()),
        traffic_(cluster.size()) {
    plan_.bytes = options.bytes;
  }

  ReshardPlan plan() {
    for (std::int32_t b = 0; b < workload_.size(); ++b) {
      const BlockId block{b};
      for (std::size_t p = 0; p < workload_.block(block).parameters.size(); ++p) {
        if (b > 0 && from_.is_tied(block, p)) continue;  // Scanned with the embedding.
        for (const StatePart part : tables_.parts(block, options_.bytes)) {
          add_tensor(block, p, part);
          if (options_.variant != ReshardVariant::fused) scan_waiting();
        }
      }
      scan_waiting();
    }
    std::sort(plan_.lost.begin(), plan_.lost.end(),
              [](const LostState& a, const LostState& b) { return a.row < b.row; });
    make_messages();
    for (std::size_t d = 0; d < traffic_.size(); ++d) {
      DeviceTraffic& device = traffic_[d];
      if (!device.device.valid()) continue;
      for (std::size_t c = 0; c < kPathClasses; ++c) plan_.moved.bytes[c] += device.sent.bytes[c];
      plan_.devices.push_back(device);
    }
    return std::move(plan_);
  }

 private:
  enum Source : std::size_t { kAlive, kLost };  ///< Sources of tables_.

  /// By device: itself if it is lost, or if it is not; else -1.
  std::vector<int> readers(const Cluster& cluster, bool lost) const {
    std::vector<int> alive(cluster.size());
    std::iota(alive.begin(), alive.end(), 0);
    std::vector<int> out(alive.size(), -1);
    for (const DeviceId device : options_.lost) {
      alive[device.index()] = -1;
      out[device.index()] = device.value;
    }
    return lost ? out : alive;
  }

  BatchedOptions batched_options() {
    if (options_.variant == ReshardVariant::no_heuristics) return {{}, false};
    return paths_.heuristics();
  }

  DeviceTraffic& traffic(int device) {
    DeviceTraffic& at = traffic_[device];
    at.device = {device};
    return at;
  }

  /// The scan's number of a table of StateTables.
  std::size_t scan_table(std::size_t holders) {
    for (std::size_t i = scan_tables_; i < tables_.holders().size(); ++i) {
      const SliceHolders& table = tables_.holders()[i];
      const std::size_t number = scan_.add(table.readers[kAlive], table.required);
      ORRERY_CHECK(number == i, "table {} became {}", i, number);
    }
    scan_tables_ = tables_.holders().size();
    return holders;
  }

  void add_tensor(BlockId block, std::size_t parameter, StatePart part) {
    if (!fused_) scan_.reset_loads();
    const TensorRows& rows = tables_.rows(block, parameter, part);
    const double elements =
        static_cast<double>(workload_.block(block).parameters[parameter].elements);
    for (const HeldSlice& held : rows.slices) {
      const double share =
          elements * static_cast<double>(held.slice.size()) / static_cast<double>(rows.length);
      plan_.rows.push_back({block, static_cast<std::int32_t>(parameter), part, held.slice,
                            Bytes{share * bytes_of(part, options_.bytes)}});
      wait(held.holders);
    }
    ++calls_;
  }

  /// The newest row waits for its senders, where `fused` with the rows of its layer that lie alike
  /// among those who are left.
  void wait(std::size_t table) {
    const auto row = static_cast<std::uint32_t>(plan_.rows.size() - 1);
    const auto alike = [&](const Waiting& each) {
      const SliceHolders& one = tables_.holders()[each.rows.front().second];
      const SliceHolders& other = tables_.holders()[table];
      return one.readers[kAlive] == other.readers[kAlive] && one.required == other.required;
    };
    auto place = waiting_.end();
    if (options_.variant == ReshardVariant::fused) {
      place = std::find_if(waiting_.begin(), waiting_.end(), alike);
    }
    if (place == waiting_.end()) place = waiting_.insert(place, Waiting{});
    place->rows.emplace_back(row, table);
    place->bytes += plan_.rows[row].bytes;
  }

  void scan_waiting() {
    for (const Waiting& each : waiting_) {
      const std::vector<int>& senders =
          scan_.choose(scan_table(each.rows.front().second), each.bytes.value);
      for (const auto& [row, table] : each.rows) place_row(row, senders, table);
    }
    waiting_.clear();
  }

  void place_row(std::uint32_t row, const std::vector<int>& senders, std::size_t table) {
    const Bytes bytes = plan_.rows[row].bytes;
    const SliceHolders& holders = tables_.holders()[table];
    for (std::size_t i = 0; i < senders.size(); ++i) {
      const int receiver = holders.required[i];
      if (senders[i] == kNobody) {
        traffic(receiver).lost += bytes;
      } else if (senders[i] == receiver) {
        plan_.copies.push_back({row, receiver});
        traffic(receiver).kept += bytes;
      } else {
        plan_.sends.push_back({row, senders[i], receiver});
        call_of_.push_back(fused_ ? 0 : calls_ - 1);
      }
    }
    if (holders.readers[kAlive].empty()) {
      plan_.lost.push_back({row, device_ids(holders.readers[kLost]), device_ids(holders.required)});
    }
  }

  /// Sends of one call between one pair become one message.
  void make_messages() {
    const auto key = [&](std::uint32_t i) {
      const SliceSend& send = plan_.sends[i];
      return std::tuple(call_of_[i], send.source, send.destination, i);
    };
    std::vector<std::uint32_t>& order = plan_.by_message;
    order.resize(plan_.sends.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    for (std::uint32_t at = 0; at < order.size(); ++at) {
      const SliceSend& send = plan_.sends[order[at]];
      const std::int32_t call = call_of_[order[at]];
      if (plan_.messages.empty() || plan_.messages.back().call != call ||
          plan_.messages.back().source.value != send.source ||
          plan_.messages.back().destination.value != send.destination) {
        plan_.messages.push_back({call,
                                  {send.source},
                                  {send.destination},
                                  LinkRanks::kind_of(paths_(send.source, send.destination)),
                                  {},
                                  at,
                                  0});
      }
      plan_.messages.back().bytes += plan_.rows[send.row].bytes;
      ++plan_.messages.back().sends;
    }
    for (const ReshardMessage& message : plan_.messages) {
      DeviceTraffic& source = traffic(message.source.value);
      DeviceTraffic& destination = traffic(message.destination.value);
      source.sent[message.path] += message.bytes;
      destination.received[message.path] += message.bytes;
      ++source.messages_sent;
      ++destination.messages_received;
    }
  }

  const Workload& workload_;
  const ReshardOptions& options_;
  bool fused_;
  LinkRanks paths_;
  Placement from_place_;
  Placement to_place_;
  BlockReplicas from_;
  BlockReplicas to_;
  StateTables tables_;
  SendScan scan_;
  std::size_t scan_tables_ = 0;
  /// Rows that one choice of senders serves.
  struct Waiting {
    std::vector<std::pair<std::uint32_t, std::size_t>> rows;  ///< With their tables_.holders().
    Bytes bytes;
  };
  std::vector<Waiting> waiting_;
  std::int32_t calls_ = 0;              ///< Tensors so far.
  std::vector<std::int32_t> call_of_;   ///< By send.
  std::vector<DeviceTraffic> traffic_;  ///< By device id; no device: not concerned.
  ReshardPlan plan_;
};

}  // namespace

ReshardBytes weight_bytes(const Job& job) {
  return {job.state_bytes.weight, job.state_bytes.master, 0};
}

ReshardBytes all_state_bytes(const Job& job) {
  return {job.state_bytes.weight, job.state_bytes.master, job.state_bytes.moments};
}

std::vector<std::pair<ReshardVariant, const char*>> enum_names(ReshardVariant) {
  return {{ReshardVariant::fused, "fused"},
          {ReshardVariant::fused_by_tensor, "fused-by-tensor"},
          {ReshardVariant::unfused, "unfused"},
          {ReshardVariant::no_heuristics, "no-heuristics"}};
}

const char* name_of(StatePart part) {
  switch (part) {
    case StatePart::weights:
      return "weights";
    case StatePart::optimizer:
      return "optimizer states";
    case StatePart::all:
      break;
  }
  return "all states";
}

Bytes sum(const ClassVolumes& volumes) {
  Bytes total;
  for (const Bytes bytes : volumes.bytes) total += bytes;
  return total;
}

void describe(config::Visitor& v, ClassVolumes& volumes) {
  v.title("Bytes by path");
  v.required("nvlink", volumes[PathClass::nvlink], "");
  v.required("pcie", volumes[PathClass::pcie], "");
  v.required("network", volumes[PathClass::network], "between nodes");
  v.required("host_staged", volumes[PathClass::host_staged], "through host memory");
}

std::vector<ReshardProblem> find_problems(const ir::Plan& from, const ir::Plan& to,
                                          const Cluster& cluster, const ReshardOptions& options) {
  using Where = ReshardProblem::Where;
  std::vector<ReshardProblem> problems;
  const std::vector<DeviceId> used = ir::devices_of(to);
  for (const DeviceId device : options.lost) {
    if (!device.valid() || device.value >= cluster.size()) {
      problems.push_back({Where::lost, fmt::format("no device {}: the cluster has 0 to {}",
                                                   device.value, cluster.size() - 1)});
    } else if (std::binary_search(used.begin(), used.end(), device)) {
      problems.push_back(
          {Where::lost, fmt::format("device {} is lost, but the new plan uses it", device.value)});
    }
  }
  for (const auto& [plan, where] : {std::pair(&from, Where::from), std::pair(&to, Where::to)}) {
    for (const PlanDefect& defect : find_redundancy_defects(*plan)) {
      problems.push_back(
          {where, fmt::format("{}: {} ({})", defect.path, defect.what, defect.hint)});
    }
  }
  return problems;
}

ReshardPlan plan_reshard(const ir::Plan& from, const ir::Plan& to, const Cluster& cluster,
                         const Topology& topology, const Workload& workload,
                         const ReshardOptions& options) {
  const std::vector<ReshardProblem> problems = find_problems(from, to, cluster, options);
  ORRERY_CHECK(problems.empty(), "switch: {}", problems.front().what);
  return ReshardPlanner(from, to, cluster, topology, workload, options).plan();
}

}  // namespace orrery::models
