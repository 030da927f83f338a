#include "sim/replay/recovery_run.h"

#include <algorithm>
#include <utility>

namespace orrery::sim {

using Kind = models::RecoveryPhase::Kind;

Bucket bucket_of(Kind kind) {
  switch (kind) {
    case Kind::detect:
      return Bucket::detect;
    case Kind::decide:
      return Bucket::decide;
    case Kind::move_state:
      return Bucket::move_state;
    case Kind::reinitialize:
    case Kind::warm_up:
      break;
  }
  return Bucket::reinitialize;
}

RecoveryRun::RecoveryRun(models::RecoveryDecision decision, Instant now,
                         const models::TransferTimer& transfers, const DeviceStates& states,
                         ReplayLedger& ledger)
    : transfers_(transfers),
      states_(states),
      ledger_(ledger),
      decision_(std::move(decision)),
      devices_(*decision_.plan),
      start_(now),
      end_(now),
      now_(now) {
  if (decision_.phases.empty()) return;
  end_ = now + duration_of(decision_.phases.front());
}

Nanoseconds RecoveryRun::duration_of(const models::RecoveryPhase& phase) const {
  if (phase.kind != Kind::move_state) return phase.duration;
  return transfers_.time(decision_.transfers, states_.degraded_links()) + phase.duration;
}

std::string RecoveryRun::label() const {
  const models::RecoveryPhase& phase = decision_.phases[phase_];
  const std::string name = phase.kind == Kind::warm_up ? "warm up" : name_of(bucket_of(phase.kind));
  return phase.source.empty() ? name : name + ": " + phase.source;
}

bool RecoveryRun::advance(Instant until) {
  const std::vector<models::RecoveryPhase>& phases = decision_.phases;
  while (phase_ < phases.size() && end_ <= until) {
    ledger_.add(bucket_of(phases[phase_].kind), start_, end_, devices_.working_count(), label());
    moved_ |= phases[phase_].kind == Kind::move_state;
    now_ = start_ = end_;
    if (++phase_ < phases.size()) end_ = start_ + duration_of(phases[phase_]);
  }
  if (phase_ == phases.size()) {
    moved_ = true;
    return true;
  }
  now_ = until;
  return false;
}

void RecoveryRun::stop() {
  if (phase_ == decision_.phases.size()) return;
  ledger_.add(bucket_of(decision_.phases[phase_].kind), start_, now_, devices_.working_count(),
              label());
  phase_ = decision_.phases.size();
}

bool RecoveryRun::needs(DeviceId device) const {
  if (devices_.works(device)) return true;
  return !moved_ && std::any_of(decision_.transfers.begin(), decision_.transfers.end(),
                                [&](const models::StateTransfer& t) {
                                  return t.source == device && t.from == ir::Location::peer;
                                });
}

}  // namespace orrery::sim
