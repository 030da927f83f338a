#include "models/interfaces/names.h"

namespace orrery::models {

ir::EnumNames<RecoveryPhase::Kind> enum_names(RecoveryPhase::Kind) {
  using Kind = RecoveryPhase::Kind;
  return {{Kind::detect, "detect"},
          {Kind::decide, "decide"},
          {Kind::move_state, "move_state"},
          {Kind::reinitialize, "reinitialize"},
          {Kind::warm_up, "warm_up"}};
}

ir::EnumNames<RecoveryDecision::Action> enum_names(RecoveryDecision::Action) {
  using Action = RecoveryDecision::Action;
  return {{Action::proceed, "proceed"}, {Action::wait, "wait"}, {Action::resume, "resume"}};
}

}  // namespace orrery::models
