#include "tools/python/session.h"

#include <signal.h>

#include <chrono>
#include <memory>
#include <variant>

#include "models/ir/wire.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/evaluator.h"
#include "sim/replay/simulated_timers.h"
#include "tools/python/commands.h"

namespace orrery::python {
namespace {

/// The simulator of a session, and what it refers to.
class Session {
 public:
  Session(models::Cluster cluster, ir::Profile profile, models::Workload workload, models::Job job,
          sim::IterationOptions options, bool for_replay)
      : cluster_(std::move(cluster)),
        profile_(std::move(profile)),
        workload_(std::move(workload)),
        job_(std::move(job)),
        topology_(cluster_, profile_) {
    if (for_replay) {
      timers_.emplace(cluster_, topology_, workload_, job_, profile_, options);
    } else {
      simulator_.emplace(cluster_, topology_);
      evaluator_.emplace(*simulator_, workload_, job_, profile_, options);
    }
  }

  std::string answer(const Channel::Message& message) {
    switch (message.kind) {
      case kProgram:
        program_ = std::get<0>(unpack<ir::Program>(message.bytes));
        return "";
      case kRun:
        return run(message.bytes);
      case kTimedRun: {
        const auto start = std::chrono::steady_clock::now();
        run(message.bytes);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        return pack(taken.count());
      }
      case kEvaluate: {
        const auto [plan] = unpack<ir::Plan>(message.bytes);
        return pack(timers_ ? timers_->evaluator().evaluate(plan) : evaluator_->evaluate(plan));
      }
      case kIteration: {
        const auto [plan, conditions] = unpack<ir::Plan, sim::IterationConditions>(message.bytes);
        return pack(timers_.value().iterations().time(plan, conditions));
      }
      case kTransfer: {
        const auto [transfers, links] =
            unpack<std::vector<models::StateTransfer>, models::DegradedLinks>(message.bytes);
        return pack(timers_.value().transfers().time(transfers, links));
      }
      case kConfig:
        return pack(simulator().effective_config());
      default:
        throw ChannelError("unknown message");
    }
  }

 private:
  sim::IterationSimulator& simulator() { return timers_ ? timers_->simulator() : *simulator_; }

  /// In a fork: with the clock at its start.
  std::string run(const std::string& bytes) {
    const sim::ForkResult result = sim::run_forked([&] {
      const auto [times, options] = unpack<std::vector<Seconds>, sim::IterationOptions>(bytes);
      sim::IterationResult outcome =
          times.empty()
              ? simulator().run(program_, models::Pricer(cluster_, workload_, job_, profile_),
                                options)
              : simulator().run(program_, models::ProgramPrices(times), options);
      if (options.record_spans) outcome.log.program_hash = ir::program_hash(program_);
      return pack(outcome);
    });
    if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
      throw ChannelError("simulation failed: " + failure->message);
    }
    return std::get<std::string>(result);
  }

  models::Cluster cluster_;
  ir::Profile profile_;
  models::Workload workload_;
  models::Job job_;
  models::Topology topology_;
  ir::Program program_;
  std::optional<sim::IterationSimulator> simulator_;
  std::optional<sim::SimulatorEvaluator> evaluator_;
  std::optional<sim::SimulatedTimers> timers_;
};

}  // namespace

void run_session(Channel channel) {
  std::unique_ptr<Session> session;
  while (const auto message = channel.receive()) {
    try {
      if (message->kind == kCommand) return run_command(channel, message->bytes);
      std::string answer;
      if (message->kind == kSetUp) {
        auto [cluster, profile, workload, job, options, for_replay] =
            unpack<models::Cluster, ir::Profile, models::Workload, models::Job,
                   sim::IterationOptions, bool>(message->bytes);
        session =
            std::make_unique<Session>(std::move(cluster), std::move(profile), std::move(workload),
                                      std::move(job), std::move(options), for_replay);
      } else {
        answer = session->answer(*message);
      }
      channel.send(kAnswer, answer);
    } catch (const std::exception& error) {
      channel.send(kFailure, error.what());
    }
  }
}

}  // namespace orrery::python
