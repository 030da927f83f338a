#include "experiments/study/function_study.h"

#include <algorithm>
#include <filesystem>

#include "experiments/study/assumptions.h"
#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/files.h"
#include "experiments/study/robust_plan.h"
#include "experiments/study/simulate.h"
#include "experiments/study/summary.h"
#include "experiments/study/switch.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

/// Scalars by their path; lists of scalars stay lists.
void flatten_into(Json& row, const Json& value, const std::string& path) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  const bool plain =
      !value.is_structured() ||
      (value.is_array() && std::none_of(value.begin(), value.end(),
                                        [](const Json& item) { return item.is_structured(); }));
  if (plain && !value.is_null()) {
    row[row.contains(path) ? "result." + path : path] =
        value.is_number_float() ? Json(rounded(value.get<double>())) : value;
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items()) flatten_into(row, item, below(key));
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      flatten_into(row, value[i], below(std::to_string(i)));
    }
  }
}

RunSeconds fill_function(const std::string& folder, const std::string& study_folder,
                         const FunctionRun& run, const Identity& identity) {
  const std::string out = fs::absolute(folder).string();
  write_text_file(out + "/effective.yaml", identity.effective_config({}));
  fs::current_path(study_folder);  // of this process, which does nothing else
  const Clock::time_point start = Clock::now();
  const FunctionResult result = run.call();
  const double seconds = seconds_since(start);
  Json summary = begin_summary(identity.hash(), std::nullopt);
  if (result.status != 0) summary["status"] = "infeasible";
  flatten_into(summary, Json::parse(result.json), "");
  write_text_file(out + "/result.json", result.json);
  write_text_file(out + "/summary.json", summary_text(summary));
  return {0, seconds};
}

}  // namespace

TaskList function_tasks(const Study& study, const std::vector<std::pair<Point, FunctionRun>>& runs,
                        bool uses_all) {
  TaskList list;
  list.open_columns = true;
  list.columns = axis_names(study);
  for (const char* column : {"run", "seed", "version", "status", "reason"}) {
    list.columns.emplace_back(column);
  }
  const std::string inputs = hash_of_study(study.folder);
  for (const auto& [point, run] : runs) {
    // What is given counts too: some settings are kept as they are until they are known.
    const Identity identity{.settings = overlay(run.settings, point.settings),
                            .hashes = {{"study", inputs}},
                            .uses_all = uses_all};
    Task task{point, identity.hash(), "", "", {point.axes.begin(), point.axes.end()}, nullptr};
    task.inputs["run"] = task.hash;
    task.inputs["seed"] = std::to_string(point.seed);
    task.inputs["version"] = identity.version();
    for (const auto& [axis, text] : point.axes) task.in_words += text + " ";
    task.in_words += "seed " + task.inputs["seed"];
    task.fill = [run = run, identity, folder_of_study = study.folder](
                    const std::string& folder, const std::function<void(double)>&) {
      return fill_function(folder, folder_of_study, run, identity);
    };
    list.tasks.push_back(std::move(task));
  }
  return list;
}

extern const StudyCommand kSimulateStudy;
const StudyCommand kSimulateStudy =
    function_study<simulate>("simulate", "given plans simulated", {"seed"});

extern const StudyCommand kAdviseStudy;
const StudyCommand kAdviseStudy = function_study<robust_plan, true>(
    "advise", "plan, recovery policy, checkpoint interval and spares chosen together", {"seed"});

extern const StudyCommand kSwitchStudy;
const StudyCommand kSwitchStudy =
    function_study<switch_plans>("switch", "the state moved from one plan to another");

}  // namespace orrery::experiments
