/// The stalls that every policy has as options, under the same names and with the same meaning, so
/// that a comparison of policies compares how they recover:
/// - detect: until the job notices that devices are gone, where the trace's event has no
///   `detection` and no notice had announced it;
/// - detect_exception: the same for a failure of the job's processes, no device lost, and for a
///   machine that is taken away (`leave`), which closes its connections;
/// - decide: planning of what to do. Before a planned change it runs beside training;
/// - reinitialize: processes, communicators, CUDA contexts, when training goes on in the policy's
///   own way; the movement of state is simulated and comes on top;
/// - restart: the same, of policies that have a way of their own, when they must fall back to a
///   checkpoint.
/// A policy whose paper states a figure, or claims to be faster, has that as default and names the
/// paper; all others share the defaults below.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/base/time.h"
#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/kit/options.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// A stall, and where its figure comes from.
struct Stall {
  Seconds duration;
  std::string source;
};

/// An option in seconds: its default, and what it means with the figure's source in brackets.
struct PhaseDefault {
  const char* seconds;
  const char* doc;
};

/// Of a hang, which is how an unreported loss shows. Fair or not, it is the same for all policies
/// whose papers claim no faster detection; traces that know better say so event by event.
inline constexpr PhaseDefault kDetect = {
    "600",
    "Seconds until lost devices are noticed where the trace does not say. Shared default: timeout "
    "of PyTorch's NCCL process group [pytorch/pytorch, pull request 110947]."};
inline constexpr PhaseDefault kDetectException = {
    "5",
    "Seconds until a failure of the job's processes, or a machine that is taken away, is noticed "
    "where the trace does not say. "
    "Shared default: torchrun polled its workers each 5 s before PyTorch 2.3 [unverified]."};
inline constexpr PhaseDefault kDecide = {
    "0",
    "Seconds of planning. Shared default: none, as if plans were ready when they are needed "
    "[assumed]; measured planning books what the search takes instead."};
inline constexpr PhaseDefault kReinitialize = {
    "300",
    "Seconds until processes, communicators and CUDA contexts are there again, without the "
    "movement of state. Shared default: low end of the 5 to 20 min of Meta's RSC [Kokolis et al. "
    "2025, arXiv 2410.21680, unverified]."};
inline constexpr PhaseDefault kRestart = {
    "300",
    "Seconds of a restart of all processes where the policy falls back to a checkpoint. Shared "
    "default: as reinitialize of policies that always restart [Kokolis et al. 2025, arXiv "
    "2410.21680, unverified]."};

struct PhaseDefaults {
  PhaseDefault detect = kDetect;
  PhaseDefault detect_exception = kDetectException;
  PhaseDefault decide = kDecide;
  PhaseDefault reinitialize = kReinitialize;
  std::optional<PhaseDefault> restart = {};  ///< None: the policy always restarts.
};
/// The options detect, detect_exception, decide, reinitialize and, if there is one, restart.
std::vector<OptionInfo> phase_options(const PhaseDefaults& defaults = {});

struct Phases {
  Stall detect;
  Stall detect_exception;
  Stall decide;
  Stall reinitialize;
  Stall restart;  ///< As reinitialize where there is no option restart.
};
/// `infos`: the policy's options, for the sources. -1 is read as a number where that is the default
/// (a formula of the policy's own).
Phases read_phases(OptionReader& reader, const std::vector<OptionInfo>& infos);

/// Seconds that an option says; its source is the option's description while it has its default.
Stall stall_option(OptionReader& reader, const std::vector<OptionInfo>& infos, const char* name);

/// Appends the phase; one without duration only if it is `decide`, for measured planning.
void add_phase(models::RecoveryDecision& decision, models::RecoveryPhase::Kind kind,
               const Stall& stall);

}  // namespace orrery::planners
