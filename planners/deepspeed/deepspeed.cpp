// DeepSpeed as Hetu v2 runs it for a baseline: every GPU is a data-parallel rank, ZeRO divides the
// states among all of them, Ulysses splits sequences between neighbors. No tensor and no pipeline
// parallelism, equal batches everywhere whatever the GPUs.
// [Rajbhandari et al. 2020; Jacobs et al. 2023; Hetu v2, 7 and Tables 4, 6, 9]
#include <memory>

#include "planners/catalog.h"
#include "planners/kit/data_parallel_search.h"
#include "planners/kit/options.h"

namespace orrery::planners {

extern const PlannerEntry kDeepspeed;

namespace {

enum class Stage { search, zero, one, two, three };

std::vector<OptionInfo> options() {
  std::vector<OptionInfo> all = {
      {"sequence_degree", "0",
       "Ulysses: GPUs that share a sequence (SP), a divisor of the heads; 0: search. Above 1 the "
       "job must allow sequence parallelism. [Jacobs et al. 2023, 3.1]"},
      {"zero_stage", "search",
       "search: all of 0, 1, 2, 3 that the job allows; or one of them. [Rajbhandari et al. 2020, "
       "5]"},
  };
  for (const OptionInfo& info : common_options()) all.push_back(info);
  return all;
}

class Deepspeed final : public Planner {
 public:
  explicit Deepspeed(DataParallelSearch search) : search_(std::move(search)) {}
  PlannerResult plan(const PlannerInput& input) const override { return run(search_, input); }

 private:
  DataParallelSearch search_;
};

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  DataParallelSearch search;
  search.planner = kDeepspeed.name;
  search.ulysses = true;
  search.forced.sequence_degree = static_cast<int>(reader.integer("sequence_degree", 0, 1'000'000));
  const Stage stage = reader.choice<Stage>("zero_stage", {{"search", Stage::search},
                                                          {"0", Stage::zero},
                                                          {"1", Stage::one},
                                                          {"2", Stage::two},
                                                          {"3", Stage::three}});
  for (const int s : {0, 1, 2, 3}) {
    if (stage == Stage::search || s + 1 == static_cast<int>(stage)) search.zero_stages.push_back(s);
  }
  read_common(reader, search);
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Deepspeed>(std::move(search));
}

}  // namespace

const PlannerEntry kDeepspeed = {
    "deepspeed",
    "Rajbhandari et al. 2020 (ZeRO), Jacobs et al. 2023 (Ulysses), as run in Hetu v2, 7",
    "ZeRO stage x Ulysses degree x data-parallel degree x micro-batch size x recompute",
    "differences between GPUs: all ranks get equal batches in the order of the nodes; overlap of "
    "communication with computation",
    options,
    make,
};

}  // namespace orrery::planners
