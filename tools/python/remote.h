/// The simulator as the process of a notebook sees it: another process (channel.h) that answers.
#pragma once
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "models/interfaces/transfer_timer.h"
#include "sim/iteration/iteration.h"
#include "sim/replay/iteration_timer.h"
#include "tools/python/channel.h"
#include "tools/python/context.h"
#include "tools/python/session.h"

namespace orrery::python {

/// All questions wait without the GIL, end in KeyboardInterrupt on Ctrl-C, and throw ChannelError
/// where there is no answer. Not for concurrent use, and of the process that made it alone: a fork
/// of it would take its answers.
class RemoteSimulator final : public models::Evaluator,
                              public sim::IterationTimer,
                              public models::TransferTimer {
 public:
  /// `socket`: of a session that has not been set up. Only one `for_replay` knows transfers and
  /// iterations under conditions, and remembers what it was asked.
  RemoteSimulator(int socket, std::shared_ptr<const Context> context,
                  const sim::IterationOptions& options, bool for_replay);

  const Context& context() const { return *context_; }
  /// Whether it may be asked again.
  bool usable() const { return !broken_ && process_ == getpid(); }
  std::string ask(char kind, const std::string& bytes) const;
  /// `times`: of each op; empty: those of the context's pricer.
  /// Sends the program, which must not be null, unless it was the last one asked about.
  void hold(const Shared<ir::Program>& program) const;
  sim::IterationResult run(const Shared<ir::Program>& program, const std::vector<Seconds>& times,
                           const sim::IterationOptions& options) const;
  models::Evaluation evaluate(const ir::Plan& plan) const override;
  std::string name() const override { return "simulator"; }
  bool is_undisturbed() const override { return undisturbed_; }
  Seconds time(const ir::Plan& plan, const sim::IterationConditions& conditions) const override;
  Nanoseconds time(const std::vector<models::StateTransfer>& transfers,
                   const models::DegradedLinks& links = {}) const override;

 private:
  std::shared_ptr<const Context> context_;
  bool undisturbed_;
  Channel channel_;
  pid_t process_ = getpid();
  mutable std::shared_ptr<const ir::Program> program_;  ///< That the session has.
  mutable bool broken_ = false;  ///< An answer may still come that nobody waits for.
};

}  // namespace orrery::python
