#include "experiments/study/summary.h"

#include "experiments/study/version.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "sim/flow/engine.h"

namespace orrery::experiments {
namespace {

constexpr const char* kSummarySchema = "orrery/summary/1";

}  // namespace

std::string cell(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : " | ") + cell(item);
  return text;
}

Json begin_summary(const std::string& hash, const std::optional<models::Infeasible>& infeasible) {
  return {{"schema", kSummarySchema},
          {"run", hash},
          {"status", infeasible ? "infeasible" : "ok"},
          {"reason", infeasible ? infeasible->constraint + ": " + infeasible->witness : ""}};
}

std::string failure_json(const std::string& hash, const std::string& reason) {
  return summary_text(
      {{"schema", kSummarySchema}, {"run", hash}, {"status", "failed"}, {"reason", reason}});
}

std::string summary_text(const Json& summary) {
  return summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_summary_of(const std::string& text, const std::string& hash) {
  const Json json = Json::parse(text, nullptr, false);
  const auto is = [&json](const char* key, const std::string& value) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() && (value.empty() || *found == value);
  };
  return json.is_object() && is("schema", kSummarySchema) && is("run", hash) && is("status", "") &&
         is("reason", "");
}

config::Value to_map(const TextPairs& entries) {
  config::Value map = config::Value::map({});
  for (const auto& [key, value] : entries) map.append(key, config::Value::scalar(value));
  return map;
}

std::string Identity::version() const {
  return uses_all ? program_version() : version_of(parts_named_in(settings));
}

std::string Identity::hash() const { return content_hash(effective_config({})); }

std::string Identity::effective_config(const TextPairs& simgrid) const {
  config::Value tree = settings;
  TextPairs all = {{"version", version()}, {"simgrid", sim::simgrid_version()}};
  all.insert(all.end(), hashes.begin(), hashes.end());
  tree.append("hashes", to_map(all));
  if (!simgrid.empty()) tree.append("simgrid", to_map(simgrid));
  return config::to_yaml(tree);
}

std::string options_text(const std::map<std::string, std::string>& options) {
  std::string text;
  for (const auto& [name, value] : options) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

}  // namespace orrery::experiments
