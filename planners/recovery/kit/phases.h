/// The stalls that every policy has as settings, under the same names and with the same meaning.
/// What a stall takes is a property of the runtime (models/spec/runtime.h), the same for all
/// policies, so that a comparison of policies compares how they recover; what a policy's paper
/// printed is kept beside it: `constants: as_published`.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/time.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/interfaces/recovery_policy.h"
#include "models/spec/runtime.h"

namespace orrery::planners {

/// Where stalls and intervals come from that the user does not give.
enum class Constants {
  runtime,       ///< The runtime: each policy pays the same for doing the same.
  as_published,  ///< What the policy's own paper printed, else the defaults below.
};
std::vector<std::pair<Constants, const char*>> enum_names(Constants);

/// A stall, and where its figure comes from. As a setting: what the paper printed, and what it
/// means with the figure's source in brackets.
struct Stall {
  enum class Of {
    published,
    option,   ///< The user's.
    runtime,  ///< What is done decides (bring_up.h); `duration` counts for detection only.
  };
  Seconds duration;
  std::string source;
  Of of = Of::published;
};

/// The setting `name`: seconds, or auto. A published duration of -1 means a formula of the
/// policy.
void describe_stall(config::Visitor& v, const char* name, Stall& stall);

/// The stall as it counts: one that the user does not give follows `constants`.
Stall settled(Stall stall, Constants constants);

/// A restart of all processes, for policies that have a faster way of their own and must fall back
/// to a checkpoint.
inline const Stall kRestart = {
    {300},
    "Seconds of a restart of all processes where the policy falls back to a checkpoint. Shared "
    "default: as reinitialize of policies that always restart [Kokolis et al. 2025, arXiv "
    "2410.21680, unverified]."};

struct Phases {
  Constants constants = Constants::runtime;
  /// Until the job notices that devices are gone, where the trace's event has no `detection` and no
  /// notice had announced it. An unreported loss shows as a hang; the published default is the same
  /// for all policies whose papers claim no faster detection.
  Stall detect = {{600},
                  "Seconds until lost devices are noticed where the trace does not say. Shared "
                  "default: timeout "
                  "of PyTorch's NCCL process group [pytorch/pytorch, pull request 110947]."};
  /// The same for a failure of the job's processes, no device lost, and for a machine that is taken
  /// away (`leave`), which closes its connections.
  Stall detect_exception = {
      {5},
      "Seconds until a failure of the job's processes, or a machine that is taken away, is noticed "
      "where the trace does not say. Shared default: torchrun polled its workers each 5 s before "
      "PyTorch 2.3 [unverified]."};
  /// Planning of what to do. Before a planned change it overlaps training.
  Stall decide = {{0},
                  "Seconds of planning. Shared default: none, as if plans were ready when they are "
                  "needed [assumed]."};
  /// Processes, communicators, CUDA contexts, when training goes on in the policy's own way; the
  /// movement of state is simulated and comes on top.
  Stall reinitialize = {
      {300},
      "Seconds until processes, communicators and CUDA contexts are there again, without the "
      "movement of state. Shared default: low end of the 5 to 20 min of Meta's RSC [Kokolis et al. "
      "2025, arXiv 2410.21680, unverified]."};
  std::optional<Stall> restart = {};  ///< kRestart; none: the policy always restarts.
};
/// The settings constants, detect, detect_exception, decide, reinitialize and, if there is one,
/// restart.
void describe_phases(config::Visitor& v, Phases& phases);

/// settled(), and detection by the runtime's monitor.
Phases settled(Phases phases, const models::Runtime& runtime);

using PhaseKind = models::RecoveryPhase::Kind;

/// Appends the phase; one without duration only if it is `decide`, for measured planning.
void add_phase(models::RecoveryDecision& decision, PhaseKind kind, const Stall& stall);

}  // namespace orrery::planners
