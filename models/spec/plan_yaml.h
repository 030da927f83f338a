/// Plans in YAML (`schema: orrery/plan/1`): descriptions for the config reader. Device
/// lists are compact (`[0-7, 12]`), block ranges are `first-last`, both ends included.
#pragma once
#include "models/config/visitor.h"
#include "models/ir/names.h"
#include "models/ir/plan.h"

namespace orrery::ir {

void describe(config::Visitor& v, LengthRange& range);
void describe(config::Visitor& v, Zero& zero);
void describe(config::Visitor& v, Group& group);
void describe(config::Visitor& v, Segment& segment);
void describe(config::Visitor& v, Stage& stage);
void describe(config::Visitor& v, Reroute& reroute);
void describe(config::Visitor& v, Pipeline& pipeline);
void describe(config::Visitor& v, Communication& communication);
void describe(config::Visitor& v, Prediction& prediction);
void describe(config::Visitor& v, Plan& plan);

}  // namespace orrery::ir
