/// Trees without what the defaults say anyway, so that written plans and profiles read well.
#pragma once
#include <map>
#include <set>
#include <string>

#include "models/config/value.h"

namespace orrery::models {

/// What sparse() needs to know about a file kind.
struct SparseRules {
  /// By key of a list: the default item. Items of other lists stay whole.
  std::map<std::string, config::Value> items;
  /// Keys that are written even when they have their default.
  std::set<std::string> always;
};

/// `value` (a map) without the entries that are equal to those of `defaults`; nested maps and the
/// items of lists named in `rules` likewise.
config::Value sparse(const config::Value& value, const config::Value& defaults,
                     const SparseRules& rules);

}  // namespace orrery::models
