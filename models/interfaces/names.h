/// The names of enum values of recovery policies, as models/ir/names.h has them for the rest.
#pragma once
#include "models/interfaces/recovery_policy.h"
#include "models/ir/names.h"

namespace orrery::models {

ir::EnumNames<RecoveryPhase::Kind> enum_names(RecoveryPhase::Kind);
ir::EnumNames<RecoveryDecision::Action> enum_names(RecoveryDecision::Action);

}  // namespace orrery::models
