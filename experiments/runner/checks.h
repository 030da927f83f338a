/// Checks that experiment files have in common.
#pragma once
#include <string>

#include "models/config/visitor.h"

namespace orrery::experiments {

/// A relative path of plain characters that stays below the results folder.
bool is_result_name(const std::string& name);

/// Reports `key` if its file does not exist beside the one that is read; nothing for "".
void check_beside(config::Visitor& v, const char* key, const std::string& file);

/// Reports `name` if it is no name of a result.
void check_result_name(config::Visitor& v, const std::string& name);

}  // namespace orrery::experiments
