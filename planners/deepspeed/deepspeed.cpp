// DeepSpeed as Hetu v2 runs it for a baseline: every GPU is a data-parallel rank, ZeRO divides the
// states among all of them, Ulysses splits sequences between neighbors. No tensor and no pipeline
// parallelism, equal batches everywhere whatever the GPUs.
// [Rajbhandari et al. 2020; Jacobs et al. 2023; Hetu v2, 7 and Tables 4, 6, 9]
#include "planners/catalog.h"
#include "planners/kit/data_parallel_search.h"
#include "planners/kit/settings.h"

namespace orrery::planners {
namespace {

enum class DeepspeedZero { zero, one, two, three, search };

ir::EnumNames<DeepspeedZero> enum_names(DeepspeedZero) {
  return {{DeepspeedZero::search, "search"},
          {DeepspeedZero::zero, "0"},
          {DeepspeedZero::one, "1"},
          {DeepspeedZero::two, "2"},
          {DeepspeedZero::three, "3"}};
}

struct DeepspeedSettings : DataParallelSettings {
  DeepspeedZero zero_stage = DeepspeedZero::search;
};

void describe(config::Visitor& v, DeepspeedSettings& s) {
  v.optional("sequence_degree", s.forced.sequence_degree,
             "Ulysses: GPUs that share a sequence (SP), a divisor of the heads; 0: search. Above 1 "
             "the job must allow sequence parallelism. [Jacobs et al. 2023, 3.1]");
  v.optional("zero_stage", s.zero_stage,
             "search: all of 0, 1, 2, 3 that the job allows; or one of them. [Rajbhandari et al. "
             "2020, 5]");
  v.between("sequence_degree", s.forced.sequence_degree, 0, 1'000'000);
  describe(v, static_cast<DataParallelSettings&>(s));
}

class Deepspeed final : public Planner {
 public:
  using Settings = DeepspeedSettings;
  explicit Deepspeed(DeepspeedSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    std::vector<int> stages = {0, 1, 2, 3};
    if (settings_.zero_stage != DeepspeedZero::search) {
      stages = {static_cast<int>(settings_.zero_stage)};
    }
    return run({.planner = "deepspeed",
                .settings = settings_,
                .ulysses = true,
                .zero_stages = std::move(stages)},
               input);
  }

 private:
  DeepspeedSettings settings_;
};

}  // namespace

extern const PlannerEntry kDeepspeed;

const PlannerEntry kDeepspeed = planner_entry<Deepspeed>(
    "deepspeed",
    "Rajbhandari et al. 2020 (ZeRO), Jacobs et al. 2023 (Ulysses), as run in Hetu v2, 7",
    "ZeRO stage x Ulysses degree x data-parallel degree x micro-batch size x recompute",
    "differences between GPUs: all ranks get equal batches in the order of the nodes; overlap of "
    "communication with computation");

}  // namespace orrery::planners
