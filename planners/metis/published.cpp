// Metis as its public code (SamsungLabs/Metis) does it where that differs from the paper: the order
// of the search, and what a stage costs. metis.cpp lists the differences.
#include <fmt/format.h>

#include <algorithm>

#include "planners/kit/integers.h"
#include "planners/metis/choices.h"
#include "planners/metis/search.h"

namespace orrery::planners {
namespace {

class MetisPublishedChoices final : public MetisChoices {
 public:
  using MetisChoices::MetisChoices;

 private:
  void fill(MetisStageChoice& choice, int first, int size, int micro_batch) const override {
    choice.broken = true;
    choice.nominal = micro_batch / choice.data;
    const std::vector<int> types = this->types(first, size);
    if (all_equal(types)) {
      choice.samples.assign(choice.data, choice.nominal);
      choice.kinds = {{types.front(), choice.nominal, {choice.nominal}}};
      if (!is_power_of_two(choice.nominal) ||
          tables_.find(types.front(), choice.tensor, choice.nominal) == nullptr) {
        return;
      }
    } else {
      choice.samples = divide(types, choice.data, choice.tensor, micro_batch);
      if (choice.samples.empty() || !add_kinds(choice, types)) return;
    }
    if (!memory_parts(choice, first, size, micro_batch)) return;
    choice.sync_ms = -kNever;
    for (const int type : types) {
      const MetisEntry* entry = is_power_of_two(choice.nominal)
                                    ? tables_.find(type, choice.tensor, choice.nominal)
                                    : nullptr;
      // A time of exactly zero counts as missing in the public code.
      const bool missing = entry == nullptr || (tables_.imported && entry->sync_ms == 0);
      choice.sync_ms = std::max(choice.sync_ms, missing ? kNever : entry->sync_ms);
    }
    choice.total_ms = time(choice, 0, tables_.layers);
    // The "data-parallel groups" of the public code hold `tensor` ranks that are `data` apart.
    double slowest = kNever;
    for (int d = 0; d < choice.data; ++d) {
      std::vector<int> ranks;
      for (int t = 0; t < choice.tensor; ++t) ranks.push_back(first + t * choice.data + d);
      const auto bandwidth = placement_.published_bandwidth(ranks);
      slowest = bandwidth ? std::min(slowest, *bandwidth) : -1;
      if (!bandwidth) break;
    }
    choice.reduce_ms_per_byte =
        slowest < 0
            ? kNever
            : 2.0 * (choice.data - 1) / (choice.data * (slowest * kMetisBytesPerMillisecond));
    choice.broken = false;
  }

  /// Parts for the memory of the stage; false where the public code stops. It takes the types of
  /// the whole cluster for those of the stage, and nodes for as large as the first.
  bool memory_parts(MetisStageChoice& choice, int first, int size, int micro_batch) const {
    const std::vector<int>& types = placement_.published_type;
    if (first + size > static_cast<int>(types.size())) return false;
    if (all_equal(std::span(types).subspan(first, size))) {
      choice.memory_parts = {micro_batch / choice.data};
    } else {
      if (static_cast<int>(types.size()) < choice.data) return false;
      const std::vector<int> samples = divide(types, choice.data, choice.tensor, micro_batch);
      if (samples.empty()) return false;
      for (const int each : samples) {
        if (each == 0) return false;
        for (const int part : binary_parts(each)) choice.memory_parts.push_back(part);
      }
    }
    return std::all_of(choice.memory_parts.begin(), choice.memory_parts.end(), [&](int part) {
      return is_power_of_two(part) && tables_.find(types.front(), choice.tensor, part) != nullptr;
    });
  }
};

class PublishedSearch {
 public:
  PublishedSearch(const MetisProblem& problem, MetisProgress& progress)
      : problem_(problem), progress_(progress) {}

  std::string run() {
    const std::vector<std::vector<int>> orders = metis_type_orders(problem_);
    const int most =
        std::min(static_cast<int>(problem_.input.devices.size()), problem_.tables.layers);
    for (const std::vector<int>& types : orders) {
      if (progress_.stop()) return "";
      now_.emplace(problem_, types, progress_);
      if (&types == &orders.front()) {
        if (!examine_groups(1, 1)) {
          return fmt::format(
              "the public code stops: no power of two makes one group of all {} devices",
              now_->placement.size());
        }
      } else {
        // It takes groups for the first possible number of stages above one while it counts only
        // one stage.
        int stages = 2;
        while (stages <= most && !examine_groups(stages, 1)) ++stages;
      }
      for (int stages = 2; stages <= most; ++stages) examine_groups(stages, stages);
    }
    if (!progress_.report().complete) {
      progress_.report().notes.push_back(
          "the rest of the published order of the search was left out");
    }
    return "";
  }

 private:
  /// False if there are no groups for that number of stages.
  bool examine_groups(int stages, int costed) {
    DeviceGroups groups(stages, now_->placement.size(), problem_.settings.variance,
                        problem_.settings.max_permute_length);
    std::vector<int> sizes;
    bool any = false;
    while (groups.next(sizes)) {
      if (progress_.stop()) return true;
      any = true;
      for (int batch = 0; batch < static_cast<int>(problem_.batches.size()); ++batch) {
        progress_.charge(1);
        start_path(path_, sizes, costed, batch);
        now_->paths.follow(path_);
      }
    }
    return any;
  }

  const MetisProblem& problem_;
  MetisProgress& progress_;
  std::optional<MetisSequence> now_;
  MetisPath path_;
};

}  // namespace

std::unique_ptr<MetisChoices> make_metis_choices(const PlannerInput& input,
                                                 const MetisSettings& settings,
                                                 const MetisTables& tables,
                                                 const MetisPlacement& placement,
                                                 const std::vector<std::int64_t>& batches) {
  if (settings.as_published()) {
    return std::make_unique<MetisPublishedChoices>(input, settings, tables, placement, batches);
  }
  return std::make_unique<MetisChoices>(input, settings, tables, placement, batches);
}

std::string search_metis_as_published(const MetisProblem& problem, MetisProgress& progress) {
  return PublishedSearch(problem, progress).run();
}

}  // namespace orrery::planners
