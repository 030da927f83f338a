#include "planners/catalog.h"

#include "planners/modules/add_to_catalog.h"

namespace orrery::planners {

extern const PlannerEntry kAlpa;
extern const PlannerEntry kAmp;
extern const PlannerEntry kAutohet;
extern const PlannerEntry kDeepspeed;
extern const PlannerEntry kExhaustive;
extern const PlannerEntry kFsdp;
extern const PlannerEntry kGalvatron;
extern const PlannerEntry kHethub;
extern const PlannerEntry kHetu;
extern const PlannerEntry kHexiscale;
extern const PlannerEntry kHexiscaleMilp;
extern const PlannerEntry kMegatronGrid;
extern const PlannerEntry kMetis;
extern const PlannerEntry kOrrery;
extern const PlannerEntry kPiper;
extern const PlannerEntry kVaruna;
extern const PlannerEntry kWhale;

namespace {

std::vector<const PlannerEntry*>& entries() {
  // clang-format off
  static auto* const all = new std::vector<const PlannerEntry*>{
      &kMegatronGrid,
      &kAutohet,
      &kHexiscale,
      &kGalvatron,
      &kAmp,
      &kHetu,
      &kDeepspeed,
      &kFsdp,
      &kExhaustive,
      &kHexiscaleMilp,
      &kHethub,
      &kAlpa,
      &kPiper,
      &kWhale,
      &kMetis,
      &kVaruna,
      &kOrrery,
  };
  // clang-format on
  return *all;
}

PlannerSource planner_source = nullptr;

}  // namespace

std::span<const PlannerEntry* const> catalog() { return entries(); }

void add_to_catalog(const PlannerEntry& entry) { entries().push_back(&entry); }

void set_planner_source(PlannerSource source) { planner_source = source; }

bool names_python(const std::string& name) { return name.find(".py:") != std::string::npos; }

const PlannerEntry* find_planner(const std::string& name) {
  for (const PlannerEntry* entry : catalog()) {
    if (name == entry->name) return entry;
  }
  return names_python(name) && planner_source != nullptr ? planner_source(name) : nullptr;
}

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const PlannerEntry* entry : catalog()) names.emplace_back(entry->name);
  return names;
}

void describe(config::Visitor& v, OptionInfo& option) {
  v.title("Option");
  v.required("name", option.name, "");
  v.required("default", option.default_value, "");
  v.required("doc", option.doc, "meaning, unit, valid values, source");
}

}  // namespace orrery::planners
