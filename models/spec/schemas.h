/// JSON Schemas (for editors) and reference pages (for docs/) of the file kinds that models/spec
/// reads.
#pragma once
#include <string>
#include <vector>

namespace orrery::models {

/// cluster, gpus, job, lengths, links, model, plan, profile, step_plan.
const std::vector<std::string>& schema_kinds();

/// JSON Schema (draft 2020-12) of one of schema_kinds().
std::string json_schema_of(const std::string& kind);

/// Markdown tables of the keys of one of schema_kinds().
std::string reference_page_of(const std::string& kind);

}  // namespace orrery::models
