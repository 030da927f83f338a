// A planner: one pipeline, one device a stage, layers divided evenly. And what the module offers.
#include <utility>
#include <vector>

#include "models/cost/memory.h"
#include "planners/kit/partition_dp.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/settings.h"
#include "planners/modules/module.h"

namespace example {

using namespace orrery;

struct EvenChainSettings {
  int micro_batch_size = 1;
};

void describe(config::Visitor& v, EvenChainSettings& s) {
  v.optional("micro_batch_size", s.micro_batch_size, "Samples per micro-batch.");
  v.at_least("micro_batch_size", s.micro_batch_size, 1);
}

class EvenChain final : public planners::Planner {
 public:
  using Settings = EvenChainSettings;
  explicit EvenChain(const Settings& settings) : size_(settings.micro_batch_size) {}

  planners::PlannerResult plan(const planners::PlannerInput& input) const override {
    planners::SearchReport report;
    report.plans_examined = report.work = 1;
    report.work_unit = "plans";
    const auto layers = planners::balance_layers(planners::count_layers(input.workload),
                                                 std::vector<double>(input.devices.size(), 1.0));
    if (!layers || input.job.global_batch % size_ != 0) {
      return {models::Infeasible{"layers", "more devices than layers, or an indivisible batch"},
              report};
    }
    ir::Pipeline chain;
    chain.micro_batch_size = size_;
    chain.micro_batches = static_cast<int>(input.job.global_batch / size_);
    int first = 0;
    for (std::size_t s = 0; s < input.devices.size(); ++s) {
      chain.stages.push_back(planners::stage_of_layers(
          input.workload, first, (*layers)[s],
          planners::tensor_groups({&input.devices[s], 1}, 1, size_),
          planners::strongest_recompute(input.job), planners::smallest_zero_stage(input.job)));
      first += (*layers)[s];
    }
    ir::Plan plan;
    plan.pipelines = {std::move(chain)};
    const models::Evaluation judged = input.evaluator.evaluate(plan);
    if (judged.memory.fits()) return {plan, report};
    report.rejected_by_memory = 1;
    return {models::Infeasible{"device memory", judged.memory.explain()}, report};
  }

 private:
  int size_;
};

constexpr planners::PlannerEntry kEvenChain =
    planners::planner_entry<EvenChain>("even_chain", "example of docs/howto/modules.md",
                                       "nothing: one plan", "differences between devices");

extern const planners::RecoveryEntry kPatient;  // patient.cpp

}  // namespace example

ORRERY_MODULE((orrery::planners::Module{{&example::kEvenChain}, {&example::kPatient}}));
