#include "models/sharding/batched_send_receive.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "models/base/check.h"

namespace orrery::models {
namespace {

/// From this many candidates on, repeated choices among them go through a heap.
constexpr std::size_t kHeapFrom = 16;

}  // namespace

struct SendScan::Impl {
  /// Owners that are equally near to a receiver, over links of one load class, in the order of the
  /// owners.
  struct Candidates {
    std::size_t link_class = 0;  ///< Index into loads.
    std::vector<int> owners;
    std::size_t receivers = 0;  ///< That share this list.
  };

  struct Table {
    /// By required device: index into `lists`, or one of the two below.
    static constexpr int kOwn = -1;
    static constexpr int kNone = -2;
    std::vector<int> choice;
    std::vector<int> required;
    std::vector<Candidates> lists;
  };

  /// (load, position in the list), smallest first.
  using Entry = std::pair<double, std::uint32_t>;
  using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  explicit Impl(BatchedOptions given) : options(std::move(given)) {}

  std::size_t class_index(int rank) {
    const int load_class = options.load_class ? options.load_class(rank) : rank;
    const auto [at, fresh] = classes.try_emplace(load_class, classes.size());
    if (fresh) loads.emplace_back();
    return at->second;
  }

  double& load(std::size_t link_class, int device) {
    std::vector<double>& of_class = loads[link_class];
    const std::size_t index = device;
    if (of_class.size() <= index) of_class.resize(index + 1, 0.0);
    return of_class[index];
  }

  Candidates nearest(const std::vector<int>& owners, int receiver) {
    if (!options.link_rank) return {class_index(0), owners, 0};
    int best = std::numeric_limits<int>::max();
    std::vector<int> near;
    for (const int owner : owners) {
      const int rank = options.link_rank(owner, receiver);
      if (rank > best) continue;
      if (rank < best) near.clear();
      best = rank;
      near.push_back(owner);
    }
    return {class_index(best), std::move(near), 0};
  }

  int pick(const Candidates& list) {
    if (!options.balance) return *std::min_element(list.owners.begin(), list.owners.end());
    int best = list.owners.front();
    double least = load(list.link_class, best);
    for (const int owner : list.owners) {
      const double own = load(list.link_class, owner);
      if (own < least) std::tie(best, least) = std::pair(owner, own);
    }
    return best;
  }

  /// Loads only grow: an entry that is out of date is too small and comes up early, to be put back.
  int pick(const Candidates& list, Heap& heap) {
    if (heap.empty()) {
      std::vector<Entry> entries;
      for (std::size_t i = 0; i < list.owners.size(); ++i) {
        entries.emplace_back(load(list.link_class, list.owners[i]), i);
      }
      heap = Heap(std::greater<>(), std::move(entries));
    }
    while (true) {
      const auto [known, position] = heap.top();
      const int owner = list.owners[position];
      const double now = load(list.link_class, owner);
      if (known == now) return owner;
      heap.pop();
      heap.emplace(now, position);
    }
  }

  BatchedOptions options;
  std::map<int, std::size_t> classes;  ///< Class of loads -> index into loads.
  std::vector<std::vector<double>> loads;
  std::vector<Table> tables;
  std::vector<int> senders;
  std::vector<Heap> heaps;
};

SendScan::SendScan(BatchedOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
SendScan::~SendScan() = default;

std::size_t SendScan::add(const std::vector<int>& owners, const std::vector<int>& required) {
  Impl::Table table;
  table.required = required;
  std::vector<int> sorted = owners;
  std::sort(sorted.begin(), sorted.end());
  ORRERY_CHECK(sorted.empty() || sorted.front() >= 0, "owner {}", sorted.front());
  ORRERY_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "an owner twice");
  std::map<std::pair<std::size_t, std::vector<int>>, int> known;
  for (const int receiver : required) {
    ORRERY_CHECK(receiver >= 0, "receiver {}", receiver);
    if (owners.empty()) {
      table.choice.push_back(Impl::Table::kNone);
      continue;
    }
    if (std::binary_search(sorted.begin(), sorted.end(), receiver)) {
      table.choice.push_back(Impl::Table::kOwn);
      continue;
    }
    Impl::Candidates list = impl_->nearest(owners, receiver);
    const auto [at, fresh] =
        known.try_emplace({list.link_class, list.owners}, static_cast<int>(table.lists.size()));
    if (fresh) table.lists.push_back(std::move(list));
    ++table.lists[at->second].receivers;
    table.choice.push_back(at->second);
  }
  impl_->tables.push_back(std::move(table));
  return impl_->tables.size() - 1;
}

const std::vector<int>& SendScan::choose(std::size_t index, double size) {
  ORRERY_CHECK(index < impl_->tables.size(), "table {} of {}", index, impl_->tables.size());
  const Impl::Table& table = impl_->tables[index];
  std::vector<int>& senders = impl_->senders;
  senders.clear();
  impl_->heaps.assign(table.lists.size(), {});
  for (std::size_t i = 0; i < table.choice.size(); ++i) {
    const int choice = table.choice[i];
    if (choice == Impl::Table::kOwn) senders.push_back(table.required[i]);
    if (choice == Impl::Table::kNone) senders.push_back(kNobody);
    if (choice < 0) continue;
    const std::size_t at = choice;
    const Impl::Candidates& list = table.lists[at];
    const bool heap =
        impl_->options.balance && list.owners.size() >= kHeapFrom && list.receivers > 1;
    const int sender = heap ? impl_->pick(list, impl_->heaps[at]) : impl_->pick(list);
    impl_->load(list.link_class, sender) += size;
    senders.push_back(sender);
  }
  return senders;
}

void SendScan::reset_loads() {
  for (std::vector<double>& of_class : impl_->loads) {
    std::fill(of_class.begin(), of_class.end(), 0.0);
  }
}

BatchedPlan plan_sends(const std::vector<SliceRow>& rows, const BatchedOptions& options) {
  SendScan scan(options);
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::size_t> tables;
  BatchedPlan plan;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const SliceRow& row = rows[r];
    auto known = tables.find({row.owners, row.required});
    if (known == tables.end()) {
      const std::size_t table = scan.add(row.owners, row.required);
      known = tables.emplace(std::pair(row.owners, row.required), table).first;
    }
    const std::vector<int>& senders = scan.choose(known->second, row.size);
    const auto index = static_cast<std::uint32_t>(r);
    for (std::size_t i = 0; i < senders.size(); ++i) {
      const int receiver = row.required[i];
      if (senders[i] == receiver) plan.copies.push_back({index, receiver});
      if (senders[i] >= 0 && senders[i] != receiver) {
        plan.sends.push_back({index, senders[i], receiver});
      }
    }
    if (!senders.empty() && senders.front() == kNobody) plan.lost.push_back(index);
  }
  return plan;
}

}  // namespace orrery::models
