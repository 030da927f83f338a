#include "models/spec/schemas.h"

#include <nlohmann/json.hpp>

#include "models/base/check.h"
#include "models/config/document.h"
#include "models/spec/cluster_file.h"
#include "models/spec/job.h"
#include "models/spec/lengths.h"
#include "models/spec/model_file.h"
#include "models/spec/plan_file.h"
#include "models/spec/profile_yaml.h"
#include "models/spec/step_plan.h"

namespace orrery::models {
namespace {

using Json = nlohmann::ordered_json;

/// Lists of a node that may be written as their only item.
std::string cluster_schema(const std::string& title) {
  Json schema = Json::parse(config::json_schema<ClusterFile>(title));
  Json& node = schema.at("properties").at("nodes").at("items").at("properties");
  for (const std::string& key : one_or_many_keys()) {
    Json& property = node.at(key);
    Json list = property;
    Json either = {{"anyOf", Json::array({list.at("items"), list})}};
    for (const char* kept : {"description", "default"}) {
      if (property.contains(kept)) either[kept] = property.at(kept);
    }
    property = std::move(either);
  }
  return schema.dump(2) + "\n";
}

struct Kind {
  std::string name;
  std::string title;
  std::string (*schema)(const std::string& title);
  std::string (*page)(const std::string& title);
};

template <class T>
Kind kind(const char* name, const char* title) {
  return {name, title, config::json_schema<T>, config::reference_page<T>};
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = [] {
    std::vector<Kind> all{kind<ClusterFile>("cluster", "Cluster"),
                          kind<GpuFile>("gpus", "GPU types"),
                          kind<Job>("job", "Job"),
                          kind<LengthModel>("lengths", "Sequence lengths"),
                          kind<LinkFile>("links", "Link classes"),
                          kind<ModelFile>("model", "Model"),
                          kind<PlanFile>("plan", "Plan"),
                          kind<ir::Profile>("profile", "Profile"),
                          kind<PlannedStep>("step_plan", "Step plan")};
    all.front().schema = cluster_schema;
    return all;
  }();
  return kKinds;
}

const Kind& find(const std::string& name) {
  for (const Kind& each : kinds()) {
    if (each.name == name) return each;
  }
  ORRERY_CHECK(false, "no file kind '{}'", name);
  return kinds().front();
}

}  // namespace

const std::vector<std::string>& schema_kinds() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Kind& each : kinds()) names.push_back(each.name);
    return names;
  }();
  return kNames;
}

std::string json_schema_of(const std::string& kind) { return find(kind).schema(find(kind).title); }

std::string reference_page_of(const std::string& kind) { return find(kind).page(find(kind).title); }

}  // namespace orrery::models
