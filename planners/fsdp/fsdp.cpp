// Fully sharded data parallelism, as HexiScale and others run it for a baseline: every GPU is a
// data-parallel rank with ZeRO-3 sharding, over all GPUs or, hybrid, inside nodes with replicas of
// the shards between them. [Zhao et al. 2023, 3.2 and 4.1; HexiScale, 5]
#include <memory>

#include "planners/catalog.h"
#include "planners/kit/data_parallel_search.h"
#include "planners/kit/options.h"

namespace orrery::planners {

extern const PlannerEntry kFsdp;

namespace {

std::vector<OptionInfo> options() {
  std::vector<OptionInfo> all = {
      {"sharding", "full",
       "Devices that divide the states among them: full, all of them; hybrid, those of a node, "
       "where all nodes give equally many; or both are tried. [Zhao et al. 2023, 3.2.1, 3.2.2]"},
      {"shard_group", "0",
       "Devices per shard group, a divisor of their number, whatever `sharding` says; 0: as it "
       "says."},
  };
  for (const OptionInfo& info : common_options()) all.push_back(info);
  return all;
}

class Fsdp final : public Planner {
 public:
  explicit Fsdp(DataParallelSearch search) : search_(std::move(search)) {}
  PlannerResult plan(const PlannerInput& input) const override { return run(search_, input); }

 private:
  DataParallelSearch search_;
};

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  DataParallelSearch search;
  search.planner = kFsdp.name;
  search.zero_stages = {3};
  search.sharding = reader.choice<Sharding>(
      "sharding",
      {{"full", Sharding::full}, {"hybrid", Sharding::hybrid}, {"both", Sharding::both}});
  search.shard_group = static_cast<int>(reader.integer("shard_group", 0, 1'000'000));
  read_common(reader, search);
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Fsdp>(std::move(search));
}

}  // namespace

const PlannerEntry kFsdp = {
    "fsdp",
    "Zhao et al. 2023 (PyTorch FSDP), as run in HexiScale, 5",
    "data-parallel degree x micro-batch size x recompute under full or hybrid sharding",
    "differences between GPUs: all ranks get equal batches in the order of the nodes; overlap of "
    "gathers with computation",
    options,
    make,
};

}  // namespace orrery::planners
