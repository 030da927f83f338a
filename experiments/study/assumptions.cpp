#include "experiments/study/assumptions.h"

#include <algorithm>

namespace orrery::experiments {

void describe(config::Visitor& v, Assumption& assumption) {
  v.title("Assumption");
  v.required("what", assumption.what, "that the paper does not say");
  v.required("value", assumption.value, "in words");
  v.required("source", assumption.source,
             "datasheet, homogeneous rows of the paper, another paper, or why it is plausible");
}

void describe(config::Visitor& v, Assumptions& assumptions) {
  v.schema("orrery/assumptions", 1);
  v.title("Assumptions");
  v.doc("What a paper leaves open, for all of its figures.");
  v.required("paper", assumptions.paper, "authors, title, place and year");
  v.optional("settings", assumptions.settings, "part of every run; studies may say otherwise");
  v.required("assumptions", assumptions.assumptions, "in the order of the paper");
  if (v.reading() && v.given("settings") && !assumptions.settings.is_map()) {
    v.problem("settings", "expected a map, got " + config::kind_text(assumptions.settings));
  }
}

config::Value overlay(config::Value base, const config::Value& over) {
  if (!base.is_map() || !over.is_map()) return over;
  for (const config::Value::Entry& entry : over.entries) {
    const auto same = std::find_if(base.entries.begin(), base.entries.end(),
                                   [&](const auto& known) { return known.key == entry.key; });
    if (same == base.entries.end()) {
      base.entries.push_back(entry);
    } else {
      same->at = entry.at;
      same->value = overlay(std::move(same->value), entry.value);
    }
  }
  base.at = over.at;
  return base;
}

}  // namespace orrery::experiments
