/// What a paper leaves open, stated once for all of its figures: efficiencies, batches, bandwidths.
/// Studies name the file as `base`; its `settings` lie under theirs.
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/value.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

/// One thing that the paper does not say.
struct Assumption {
  std::string what;    ///< "global batch of section V-A"
  std::string value;   ///< As used: "1024 sequences of 2048 tokens"
  std::string source;  ///< What it was chosen from: a datasheet, homogeneous rows, another paper.
};

struct Assumptions {
  std::string paper;
  config::Value settings;  ///< Part of every run of the paper's figures.
  std::vector<Assumption> assumptions;
};

/// YAML (`schema: orrery/assumptions/1`).
void describe(config::Visitor& v, Assumption& assumption);
void describe(config::Visitor& v, Assumptions& assumptions);

/// `base` with everything that `over` says: maps are merged key by key, all else is replaced.
config::Value overlay(config::Value base, const config::Value& over);

}  // namespace orrery::experiments
