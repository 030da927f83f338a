// Both elastic traces of Hetu v2, section 7.2 (Figure 14): simulated step time of each
// configuration and system, and the time of each transition: a restart and a load from storage,
// what a policy of the catalog decides, or graph specialization and fused batched send-receive.
// Prints a CSV.
//
//     hetu_elastic FOLDER > runs.csv
//
// FOLDER holds elastic.yaml and what it names. Detection, planning and lost iterations are not part
// of a transition here.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "experiments/recovery/case_study.h"
#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/reshard/reshard_plan.h"
#include "models/spec/library.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/restore.h"

namespace orrery::experiments {

enum class ElasticRecovery { restart, switch_weights, switch_all, policy };
std::vector<std::pair<ElasticRecovery, const char*>> enum_names(ElasticRecovery) {
  return {{ElasticRecovery::restart, "restart"},
          {ElasticRecovery::switch_weights, "switch"},
          {ElasticRecovery::switch_all, "switch_all"},
          {ElasticRecovery::policy, "policy"}};
}

struct ElasticConfiguration {
  std::string name;
  std::string devices;
  std::vector<int> lost;
};

struct ElasticSystem {
  std::string name;
  ElasticRecovery recovery = ElasticRecovery::restart;
  std::vector<config::Located<std::string>> plans;
  std::string policy;
};

struct ElasticTrace {
  std::string name;
  config::Located<std::string> cluster;
  std::vector<ElasticConfiguration> configurations;
  std::vector<ElasticSystem> systems;
};

struct ElasticFile {
  config::Located<std::string> model;
  models::Job job;
  Seconds restart;
  Seconds specialization;
  std::vector<ElasticTrace> traces;
};

void describe(config::Visitor& v, ElasticConfiguration& configuration) {
  v.required("name", configuration.name, "the paper's");
  v.required("devices", configuration.devices, "in words");
  v.optional("lost", configuration.lost, "devices that fail when it begins");
}

void describe(config::Visitor& v, ElasticSystem& system) {
  v.required("name", system.name, "in tables and figures");
  v.required("recovery", system.recovery,
             "restart: from storage; switch: between GPUs, weights and master copy; switch_all: "
             "moments too; policy: as it decides");
  v.optional("plans", system.plans, "for each configuration, files seen from this one");
  v.optional("policy", system.policy, "of the catalog");
  if (!v.reading() || !v.good()) return;
  if ((system.recovery == ElasticRecovery::policy) == system.policy.empty()) {
    v.problem("policy", "named if and only if recovery is policy");
  } else if (!system.policy.empty() && planners::find_policy(system.policy) == nullptr) {
    v.problem("policy", "unknown policy '" + system.policy + "'",
              config::suggest(system.policy, planners::policy_names(), "policies"));
  }
}

void describe(config::Visitor& v, ElasticTrace& trace) {
  v.required("name", trace.name, "");
  v.required("cluster", trace.cluster, "a file beside this one");
  v.required("configurations", trace.configurations, "in the order of time");
  v.required("systems", trace.systems, "");
  if (!v.reading() || !v.good()) return;
  for (const ElasticSystem& system : trace.systems) {
    if (system.policy.empty() && system.plans.size() != trace.configurations.size()) {
      v.problem("systems", system.name + " needs a plan for each configuration");
    }
  }
}

void describe(config::Visitor& v, ElasticFile& file) {
  v.schema("orrery/hetu_elastic", 1);
  v.required("model", file.model, "of the library");
  v.required("job", file.job, "");
  v.required("restart", file.restart, "processes, communicators, model: before the load");
  v.required("specialization", file.specialization, "of the graph, before the switch");
  v.required("traces", file.traces, "");
  v.not_negative("restart", file.restart);
  v.not_negative("specialization", file.specialization);
}

namespace {

using planners::StateSource;

struct Transition {
  Seconds fixed;
  Seconds move;
  Seconds bound;  ///< The closed form of `move`.
  Bytes moved;
  std::string note;
};

/// One per process.
class Trace {
 public:
  Trace(const ElasticFile& file, const ElasticTrace& trace, const models::Cluster& cluster,
        const models::Workload& workload)
      : file_(file), trace_(trace), workload_(workload), at_(cluster, workload, file.job) {}

  /// `plans`: for each configuration; empty for a policy.
  void run(const ElasticSystem& system, const std::vector<ir::Plan>& plans) {
    std::unique_ptr<models::RecoveryPolicy> policy;
    if (system.recovery == ElasticRecovery::policy) policy = make(system.policy);
    std::vector<DeviceId> live = at_.all_devices();
    models::PlanPointer plan;
    for (std::size_t c = 0; c < trace_.configurations.size(); ++c) {
      std::vector<DeviceId> lost;
      for (const int id : trace_.configurations[c].lost) lost.push_back({id});
      std::erase_if(live, [&](DeviceId device) {
        return std::find(lost.begin(), lost.end(), device) != lost.end();
      });
      Transition transition;
      models::PlanPointer next;
      if (!policy) next = std::make_shared<const ir::Plan>(plans[c]);
      if (c == 0) {
        if (policy) next = first(*policy, live);
        transition.note = "start";
      } else if (policy) {
        next = plan;
        transition = decide(*policy, live, lost, next);
      } else if (*next == *plan) {
        transition.note = "the running plan is not touched";
      } else {
        transition = change(system.recovery, state(plan, live), *next);
      }
      plan = next;
      print(system, c, live.size(), plan.get(), transition);
      if (plan == nullptr) return;
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::unique_ptr<models::RecoveryPolicy> make(const std::string& name) const {
    auto made = planners::find_policy(name)->make(at_.input(), {});
    if (const auto* no = std::get_if<models::Infeasible>(&made)) {
      throw std::runtime_error(fmt::format("{}: {}: {}", name, no->constraint, no->witness));
    }
    ORRERY_CHECK(made.index() == 0, "policy {} refuses its defaults", name);
    return std::get<0>(std::move(made));
  }
  static models::PlanPointer first(const models::RecoveryPolicy& policy,
                                   const std::vector<DeviceId>& live) {
    auto found = policy.first_plan(live);
    if (const auto* no = std::get_if<models::Infeasible>(&found)) {
      throw std::runtime_error(
          fmt::format("{}: {}: {}", policy.name(), no->constraint, no->witness));
    }
    return std::get<models::PlanPointer>(found);
  }

  models::JobState state(const models::PlanPointer& plan, const std::vector<DeviceId>& live) const {
    models::JobState out = at_.state_after(plan, live, false);
    out.training = true;
    out.iteration_time = at_.evaluator().evaluate(*plan).iteration_time;
    return out;
  }

  void add_transfers(const std::vector<models::StateTransfer>& transfers,
                     Transition& transition) const {
    const RecoveryCase::Move move = at_.move(transfers);
    transition.move += move.time;
    transition.bound += move.bound;
    transition.moved += move.bytes;
  }

  Transition change(ElasticRecovery recovery, const models::JobState& from,
                    const ir::Plan& to) const {
    Transition transition;
    planners::RestoreOptions options{1, {StateSource::cloud}, models::all_state_bytes(file_.job)};
    transition.fixed = file_.restart;
    transition.note = "restart and load";
    if (recovery != ElasticRecovery::restart) {
      options.order = {StateSource::own_gpu, StateSource::peer_gpu};
      if (recovery == ElasticRecovery::switch_weights) {
        options.bytes = models::weight_bytes(file_.job);
      }
      transition.fixed = file_.specialization;
      transition.note = "specialization and send-receive";
    }
    const planners::Restore restore = planners::plan_restore(at_.input(), from, to, options);
    if (!restore.complete()) throw std::runtime_error("missing: " + restore.witness);
    add_transfers(restore.transfers, transition);
    return transition;
  }

  /// `plan` goes in as what runs and comes out as what is decided.
  Transition decide(const models::RecoveryPolicy& policy, const std::vector<DeviceId>& live,
                    const std::vector<DeviceId>& lost, models::PlanPointer& plan) const {
    ir::ClusterEvent event;
    event.scope.devices = lost;
    const std::vector<ir::ClusterEvent> events = {event};
    const models::RecoveryDecision decision = policy.on_events(state(plan, live), events);
    Transition transition;
    transition.note = decision.reason;
    if (decision.action == models::RecoveryDecision::Action::wait) plan = nullptr;
    if (decision.action != models::RecoveryDecision::Action::resume) return transition;
    plan = decision.plan;
    for (const models::RecoveryPhase& phase : decision.phases) {
      if (phase.kind == models::RecoveryPhase::Kind::detect) continue;
      transition.fixed += to_seconds(phase.duration);
    }
    add_transfers(decision.transfers, transition);
    return transition;
  }

  void print(const ElasticSystem& system, std::size_t c, std::size_t live, const ir::Plan* plan,
             const Transition& transition) {
    const ElasticConfiguration& at = trace_.configurations[c];
    std::string step = ",,";
    if (plan != nullptr) {
      const models::Evaluation result = at_.evaluator().evaluate(*plan);
      step = fmt::format("{},{:.4f},{}", ir::devices_of(*plan).size(), result.iteration_time.value,
                         result.memory.fits() ? "yes" : "no");
    }
    std::string note = transition.note;
    std::replace(note.begin(), note.end(), '"', '\'');
    text_ +=
        fmt::format("{},{},\"{}\",{},\"{}\",{},{:.3f},{:.3f},{:.3f},{:.3f},{:.2f},\"{}\",\"{}\"\n",
                    trace_.name, at.name, at.devices, live, system.name, step,
                    (transition.fixed + transition.move).value, transition.fixed.value,
                    transition.move.value, transition.bound.value, transition.moved.value / 1e9,
                    note, plan == nullptr ? "" : planners::in_words(*plan, workload_));
  }

  const ElasticFile& file_;
  const ElasticTrace& trace_;
  const models::Workload& workload_;
  RecoveryCase at_;
  std::string text_;
};

void run(const std::string& folder) {
  config::Diagnostics diagnostics;
  const auto file = config::load_file<ElasticFile>(in_folder(folder, "elastic.yaml"), diagnostics);
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  diagnostics.raise();
  const models::Workload workload =
      models::load_workload(file.model.value, file.job, library, file.model.at, diagnostics);
  diagnostics.raise();
  fmt::print(
      "trace,configuration,devices,live,system,used,step_s,fits,transition_s,fixed_s,move_s,"
      "bound_s,moved_gb,note,plan\n");
  for (const ElasticTrace& trace : file.traces) {
    const models::Cluster cluster = models::load_cluster(in_folder(folder, trace.cluster.value),
                                                         library, trace.cluster.at, diagnostics);
    diagnostics.raise();
    std::vector<std::vector<ir::Plan>> plans(trace.systems.size());
    for (std::size_t s = 0; s < trace.systems.size(); ++s) {
      for (const auto& name : trace.systems[s].plans) {
        plans[s].push_back(models::load_plan(in_folder(folder, name.value), diagnostics));
        diagnostics.raise();
        models::report(models::validate(plans[s].back(), cluster, workload, file.job),
                       in_folder(folder, name.value), diagnostics);
      }
    }
    diagnostics.raise();
    fmt::print("{}", forked_text([&] {
                 Trace running(file, trace, cluster, workload);
                 for (std::size_t s = 0; s < plans.size(); ++s)
                   running.run(trace.systems[s], plans[s]);
                 return running.text();
               }));
  }
}

}  // namespace
}  // namespace orrery::experiments

int main(int count, char** values) {
  return orrery::experiments::run_on_folder(count, values, orrery::experiments::run);
}
