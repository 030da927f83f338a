#include "experiments/study/function_study.h"

#include <algorithm>
#include <filesystem>

#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/files.h"
#include "experiments/study/simulate.h"
#include "experiments/study/summary.h"
#include "experiments/study/version.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

Json json_of(const config::Value& value) {
  if (value.is_null()) return nullptr;
  if (value.is_map()) {
    Json json = Json::object();
    for (const auto& entry : value.entries) json[entry.key] = json_of(entry.value);
    return json;
  }
  if (value.is_list()) {
    Json json = Json::array();
    for (const config::Value& item : value.items) json.push_back(json_of(item));
    return json;
  }
  return value.text;
}

/// Scalars by their path; lists of scalars stay lists.
void flatten_into(Json& row, const config::Value& value, const std::string& path) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  const bool plain = std::all_of(value.items.begin(), value.items.end(),
                                 [](const config::Value& item) { return item.is_scalar(); });
  if (value.is_map()) {
    for (const auto& entry : value.entries) flatten_into(row, entry.value, below(entry.key));
  } else if (value.is_list() && !plain) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      flatten_into(row, value.items[i], below(std::to_string(i)));
    }
  } else if (!value.is_null()) {
    row[row.contains(path) ? "result." + path : path] = json_of(value);
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
  flatten_into(summary, result.value, "");
  write_text_file(out + "/result.json", json_of(result.value).dump(2) + "\n");
  write_text_file(out + "/summary.json", summary_text(summary));
  return {0, seconds};
}

}  // namespace

TaskList function_tasks(const Study& study, std::vector<std::pair<Point, FunctionRun>> runs) {
  TaskList list;
  list.open_columns = true;
  list.columns = axis_names(study);
  for (const char* column : {"run", "seed", "version", "status", "reason"}) {
    list.columns.emplace_back(column);
  }
  const std::string inputs = hash_of_inputs(study.folder);
  for (auto& [point, run] : runs) {
    const Identity identity{run.settings, {{"study", inputs}}};
    Task task{point, identity.hash(), "", "", {point.axes.begin(), point.axes.end()}, nullptr};
    task.inputs["run"] = task.hash;
    task.inputs["seed"] = std::to_string(point.seed);
    task.inputs["version"] = program_version();
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
    function_study<simulate>("simulate", "what `orrery simulate` does", {"seed"});

}  // namespace orrery::experiments
