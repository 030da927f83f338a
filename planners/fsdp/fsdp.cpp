// Fully sharded data parallelism, as HexiScale and others run it for a baseline: every GPU is a
// data-parallel rank with ZeRO-3 sharding, over all GPUs or, hybrid, inside nodes with replicas of
// the shards between them. [Zhao et al. 2023, 3.2 and 4.1; HexiScale, 5]
#include "planners/catalog.h"
#include "planners/kit/data_parallel_search.h"
#include "planners/kit/settings.h"

namespace orrery::planners {
namespace {

struct FsdpSettings : DataParallelSettings {
  Sharding sharding = Sharding::full;
  int shard_group = 0;
};

void describe(config::Visitor& v, FsdpSettings& s) {
  v.optional(
      "sharding", s.sharding,
      "Devices that divide the states among them: full, all of them; hybrid, those of a node, "
      "where all nodes give equally many; or both are tried. [Zhao et al. 2023, 3.2.1, 3.2.2]");
  v.optional(
      "shard_group", s.shard_group,
      "Devices per shard group, a divisor of their number, whatever `sharding` says; 0: as it "
      "says.");
  v.between("shard_group", s.shard_group, 0, 1'000'000);
  describe(v, static_cast<DataParallelSettings&>(s));
}

class Fsdp final : public Planner {
 public:
  using Settings = FsdpSettings;
  explicit Fsdp(FsdpSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return run({.planner = "fsdp",
                .settings = settings_,
                .zero_stages = {3},
                .sharding = settings_.sharding,
                .shard_group = settings_.shard_group},
               input);
  }

 private:
  FsdpSettings settings_;
};

}  // namespace

extern const PlannerEntry kFsdp;

const PlannerEntry kFsdp = planner_entry<Fsdp>(
    "fsdp", "Zhao et al. 2023 (PyTorch FSDP), as run in HexiScale, 5",
    "data-parallel degree x micro-batch size x recompute under full or hybrid sharding",
    "differences between GPUs: all ranks get equal batches in the order of the nodes; overlap of "
    "gathers with computation");

}  // namespace orrery::planners
