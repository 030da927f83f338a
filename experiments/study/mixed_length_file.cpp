#include "experiments/study/mixed_length_file.h"

#include <fmt/format.h>

#include <set>

#include "experiments/study/checks.h"
#include "models/config/document.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::experiments {
namespace {

/// Rows of equal names would be taken for one.
void check_distinct(config::Visitor& v, const MixedLengthFile& file) {
  std::set<std::string> cases;
  for (const MixedLengthCase& one : file.cases) {
    if (!cases.insert(one.name).second) {
      v.problem("cases", fmt::format("case '{}' stands twice", one.name));
    }
    std::set<std::string> names;
    for (const MixedLengthSystem& system : one.systems) {
      if (names.insert(system.name).second) continue;
      v.problem("cases",
                fmt::format("system '{}' stands twice in case '{}'", system.name, one.name));
    }
  }
}

}  // namespace

void describe(config::Visitor& v, MixedLengthSystem& system) {
  v.title("System");
  v.required("name", system.name, "in tables and figures");
  v.required("planner", system.planner, "step planner");
  planners::describe(v, system.set);
  if (!v.reading() || !v.good()) return;
  if (planners::find_step_planner(system.planner.value) != nullptr) return;
  v.problem("planner", "unknown step planner '" + system.planner.value + "'",
            config::suggest(system.planner.value, planners::step_planner_names(), "step planners"));
}

void describe(config::Visitor& v, MixedLengthCase& one) {
  v.title("Case");
  v.required("name", one.name, "in tables and figures");
  v.required("job", one.job,
             "job with `lengths`, or the path of a job file; sequences longer than its "
             "sequence_length are cut");
  v.required("systems", one.systems, "what is compared");
  if (v.reading() && v.given("systems") && one.systems.empty())
    v.problem("systems", "no system is given");
}

void describe(config::Visitor& v, MixedLengthFile& file) {
  v.schema("orrery/mixed_length", 1);
  v.title("Mixed-length experiment");
  describe_subject(v, file);
  v.required("cluster", file.cluster, "of the library, or a file seen from the current folder");
  v.required("model", file.model, "of the library, or a file beside this one");
  v.optional("tokens_per_step", file.tokens_per_step,
             "exactly; without: as many sequences as the job's global_batch says");
  v.optional("steps", file.steps, "of each case");
  v.optional("seed", file.seed, "of the sequences");
  v.required("cases", file.cases, "");
  if (v.reading() && v.given("cases") && file.cases.empty()) v.problem("cases", "no case is given");
  if (v.reading() && v.good()) check_distinct(v, file);
  if (v.reading() && file.tokens_per_step.value_or(1) > kMostTokens) {
    v.problem("tokens_per_step", fmt::format("at most {}", kMostTokens));
  }
  if (v.reading() && file.steps > kMostSteps) {
    v.problem("steps", fmt::format("at most {}", kMostSteps));
  }
  if (file.tokens_per_step) {
    v.at_least("tokens_per_step", *file.tokens_per_step, std::int64_t{1});
  }
  v.at_least("steps", file.steps, 1);
  v.at_least("seed", file.seed, std::int64_t{0});
}

}  // namespace orrery::experiments
