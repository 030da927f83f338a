#include "experiments/study/function_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "experiments/study/assumptions.h"
#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/files.h"
#include "experiments/study/robust_plan.h"
#include "experiments/study/simulate.h"
#include "experiments/study/summary.h"
#include "experiments/study/switch.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/config/schema_of.h"

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

/// The contents of what runs name, and of what these files name in turn: a plan the cluster that it
/// was made for, a file of jobs their plans.
class NamedContents {
 public:
  /// Keeps references. Names are seen from `folder`, and from that of the file that has them.
  NamedContents(const std::string& folder, const models::Library& library)
      : folder_(folder), library_(library) {}

  /// A hash of them; "": the name is neither a file nor of the library, as the run will say.
  const std::string& of(const std::string& name) {
    const auto [known, is_new] = known_.try_emplace(name);
    if (!is_new || name.empty()) return known->second;
    seen_.clear();
    lines_.clear();
    std::error_code error;
    const std::string path = data_path(name, folder_);
    if (fs::is_directory(path, error)) lines_.insert(hash_of_study(path));  // a recorded run
    add(name, folder_);
    if (!lines_.empty()) {
      known->second = content_hash(fmt::format("{}", fmt::join(lines_, "\n")));
    }
    return known->second;
  }

 private:
  void add(const std::string& name, const std::string& beside) {
    if (!seen_.insert({name, beside}).second) return;
    std::set<std::string> paths = {data_path(name, folder_), data_path(name, beside)};
    for (const char* kind : {"clusters", "models", "profiles", "lengths", "traces"}) {
      paths.insert((fs::path(library_.root) / kind / (name + ".yaml")).string());
    }
    std::error_code error;
    for (const std::string& path : paths) {
      if (fs::is_regular_file(path, error)) add_file(name, path);
    }
  }
  void add_file(const std::string& name, const std::string& path) {
    lines_.insert(fmt::format("{} {}", name, hash_of_inputs(path)));
    const std::string schema = config::schema_of(path);
    config::Diagnostics ignored;                  // The run reports them.
    if (schema.starts_with("orrery/cluster/")) {  // With GPUs and links of the library.
      const models::Cluster cluster = models::load_cluster(path, library_, {}, ignored);
      lines_.insert(fmt::format("{} {} {}", name, cluster.hash, cluster.power_hash));
    } else if (schema.starts_with("orrery/")) {
      add_values(config::load_value(path, ignored), fs::path(path).parent_path().string());
    }
  }
  void add_values(const config::Value& value, const std::string& beside) {
    const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
    if (std::any_of(value.text.begin(), value.text.end(), is_letter)) add(value.text, beside);
    for (const config::Value& item : value.items) add_values(item, beside);
    for (const config::Value::Entry& entry : value.entries) add_values(entry.value, beside);
  }

  const std::string& folder_;
  const models::Library& library_;
  std::map<std::string, std::string> known_;            ///< Hashes by name.
  std::set<std::pair<std::string, std::string>> seen_;  ///< Names and where they stand.
  std::set<std::string> lines_;                         ///< Of the name that is asked for.
};

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
                        const models::Library& library, bool uses_all) {
  TaskList list;
  list.open_columns = true;
  list.columns = axis_names(study);
  for (const char* column : {"run", "seed", "version", "status", "reason"}) {
    list.columns.emplace_back(column);
  }
  const std::string own_folder = hash_of_study(study.folder);
  NamedContents contents(study.folder, library);
  for (const auto& [point, run] : runs) {
    TextPairs hashes = {{"study", own_folder}};
    for (const std::string& name : run.inputs) {
      const std::string& hash = contents.of(name);
      if (!hash.empty()) hashes.emplace_back(name, hash);
    }
    // What is given counts too: some settings are kept as they are until they are known.
    const Identity identity{.settings = overlay(run.settings, point.settings),
                            .hashes = std::move(hashes),
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
