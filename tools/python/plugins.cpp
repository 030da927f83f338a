#include "tools/python/plugins.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/cost/memory.h"
#include "tools/python/bindings.h"
#include "tools/python/search.h"

namespace orrery::python {
namespace {

/// What plan(input) or a policy may ask. (With a constructor: an aggregate would be a record.)
struct PlannerQuestions {
  PlannerQuestions(const models::Evaluator* asked, const std::atomic<bool>* flag)
      : evaluator(asked), canceled(flag) {}
  const models::Evaluator* evaluator;  ///< Null once the search or the policy has ended.
  const std::atomic<bool>* canceled;   ///< May be null.
};

/// Ends the questions when it goes: Python may keep its input for longer.
std::shared_ptr<void> end_with(const std::shared_ptr<PlannerQuestions>& questions) {
  return {questions.get(), [questions](void*) {
            questions->evaluator = nullptr;
            questions->canceled = nullptr;
          }};
}

const models::Evaluator& evaluator_of(const PlannerQuestions& questions) {
  if (questions.evaluator == nullptr)
    throw py::value_error("the search or policy that asked has ended");
  return *questions.evaluator;
}

std::shared_ptr<Context> copy_of(const models::Cluster& cluster, const models::Workload& workload,
                                 const models::Job& job, const ir::Profile& profile) {
  return std::make_shared<Context>(std::make_shared<const models::Cluster>(cluster),
                                   std::make_shared<const models::Workload>(workload),
                                   std::make_shared<const models::Job>(job),
                                   std::make_shared<const ir::Profile>(profile));
}

/// An answer of the user's code in C++; what does not fit is TypeError.
template <class T>
T answer(py::handle object, const std::string& where) {
  T value{};
  try {
    Convert<T>::from(object, value);
  } catch (Mismatch& mismatch) {
    mismatch.path.insert(0, where);
    raise(mismatch);
  }
  return value;
}

std::string name_of(py::handle object) {
  return py::str(py::type::handle_of(object).attr("__name__"));
}

[[noreturn]] void breach(const std::string& where, std::string what, std::string hint = "") {
  throw config::ConfigError({{{where, 0, 0}, std::move(what), std::move(hint)}});
}

bool lives(DeviceId device, const std::vector<DeviceId>& live) {
  return std::binary_search(live.begin(), live.end(), device);
}

bool all_live(const ir::Plan& plan, const std::vector<DeviceId>& live) {
  const std::vector<DeviceId> working = ir::working_devices(plan);
  return std::all_of(working.begin(), working.end(),
                     [&](DeviceId device) { return lives(device, live); });
}

/// Whether a transfer's end at `location` of `device` is there.
bool reachable(ir::Location location, DeviceId device, const models::Cluster& cluster,
               const std::vector<DeviceId>& live) {
  if (location == ir::Location::cloud) return true;
  if (!device.valid() || device.value >= cluster.size()) return false;
  if (location == ir::Location::peer) return lives(device, live);
  const std::vector<DeviceId> of_node = cluster.devices_of(cluster.device(device).node);
  return std::any_of(of_node.begin(), of_node.end(),
                     [&](DeviceId each) { return lives(each, live); });
}

}  // namespace

PythonPlanner::PythonPlanner(py::object planner, std::shared_ptr<Context> context)
    : planner_(std::move(planner)), context_(std::move(context)) {}

PythonPlanner::~PythonPlanner() {
  const py::gil_scoped_acquire acquire;
  planner_ = {};
  context_ = nullptr;
}

planners::PlannerResult PythonPlanner::plan(const planners::PlannerInput& input) const {
  const py::gil_scoped_acquire acquire;
  const std::shared_ptr<Context> context =
      context_ ? context_ : copy_of(input.cluster, input.workload, input.job, input.profile);
  const auto questions = std::make_shared<PlannerQuestions>(&input.evaluator, input.canceled);
  const std::shared_ptr<void> asked = end_with(questions);
  const py::object given = py::module_::import("orrery.plugins")
                               .attr("PlannerInput")(context, questions, to_python(input.devices),
                                                     input.seed, input.work_budget);
  const std::string where = name_of(planner_) + ".plan()";
  const py::object made = planner_.attr("plan")(given);
  planners::PlannerResult result;
  if (py::isinstance(made, record_info<planners::PlannerResult>().type)) {
    result = answer<planners::PlannerResult>(made, where);
  } else {
    result.outcome = answer<std::variant<ir::Plan, models::Infeasible>>(made, where);
  }
  auto* plan = std::get_if<ir::Plan>(&result.outcome);
  if (plan == nullptr) return result;
  require_valid(*plan, *context, where);
  const ir::MemoryVerdict verdict =
      models::check_memory(*plan, input.cluster, input.workload, input.job, input.profile);
  if (!verdict.fits()) {
    result.outcome = models::Infeasible{"device memory", verdict.explain()};
    return result;
  }
  if (plan->planner.empty()) plan->planner = name_of(planner_);
  plan->cluster_hash = input.cluster.hash;
  plan->workload_hash = input.workload.hash;
  if (!result.report.estimate && plan->predicted) {
    result.report.estimate = plan->predicted->iteration_time;
  }
  return result;
}

PythonPolicy::PythonPolicy(py::object policy, std::shared_ptr<Context> context,
                           std::shared_ptr<void> asked)
    : policy_(std::move(policy)),
      context_(std::move(context)),
      asked_(std::move(asked)),
      name_(python::name_of(policy_)) {}

PythonPolicy::~PythonPolicy() {
  const py::gil_scoped_acquire acquire;
  policy_ = {};
  context_ = nullptr;
  asked_ = nullptr;
}

void PythonPolicy::check(const models::PlanPointer& plan, const std::vector<DeviceId>& live,
                         const char* where) const {
  if (plan != checked_) require_valid(*plan, *context_, where);
  checked_ = plan;
  if (!all_live(*plan, live)) breach(where, "a device of the plan is not there");
}

std::variant<models::PlanPointer, models::Infeasible> PythonPolicy::first_plan(
    const std::vector<DeviceId>& live) const {
  const py::gil_scoped_acquire acquire;
  const py::object made = policy_.attr("first_plan")(to_python(live));
  if (py::isinstance(made, record_info<models::Infeasible>().type)) {
    return answer<models::Infeasible>(made, "first_plan()");
  }
  const auto plan = answer<models::PlanPointer>(made, "first_plan()");
  if (plan == nullptr) breach("first_plan()", "no plan", "return a Plan or Infeasible");
  check(plan, live, "first_plan()");
  return plan;
}

std::vector<models::CheckpointLevel> PythonPolicy::checkpoints(const ir::Plan& plan,
                                                               Seconds iteration_time) const {
  const py::gil_scoped_acquire acquire;
  const auto levels = answer<std::vector<models::CheckpointLevel>>(
      policy_.attr("checkpoints")(to_python(plan), iteration_time.value), "checkpoints()");
  const std::size_t shards = ir::devices_of(plan).size();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const models::CheckpointLevel& level = levels[i];
    const std::string where = fmt::format("checkpoints()[{}]", i);
    if (level.every < 1)
      breach(where + ".every", fmt::format("must be at least 1, is {}", level.every));
    if (level.stall.count < 0 || level.persist < level.stall) {
      breach(where, "stall and persist must be zero or more, and persist no less than stall");
    }
    if (!level.stored_on.empty() && level.stored_on.size() != shards) {
      breach(where + ".stored_on",
             fmt::format("{} devices for {} shards", level.stored_on.size(), shards));
    }
  }
  return levels;
}

models::RecoveryDecision PythonPolicy::on_events(const models::JobState& state,
                                                 std::span<const ir::ClusterEvent> events) const {
  const py::gil_scoped_acquire acquire;
  const auto decision = answer<models::RecoveryDecision>(
      policy_.attr("on_events")(to_python(state),
                                to_python(std::vector(events.begin(), events.end()))),
      "on_events()");
  using Action = models::RecoveryDecision::Action;
  const bool broken = state.plan == nullptr || !all_live(*state.plan, state.live);
  if (decision.action == Action::proceed && broken) {
    breach("on_events()", "action 'proceed' with a plan that lost a device",
           "answer 'resume' with another plan, or 'wait'");
  }
  if (decision.action != Action::resume) return decision;
  if (decision.plan == nullptr) breach("on_events()", "action 'resume' without a plan");
  check(decision.plan, state.live, "on_events().plan");
  for (std::size_t i = 0; i < decision.transfers.size(); ++i) {
    const models::StateTransfer& transfer = decision.transfers[i];
    if (reachable(transfer.from, transfer.source, context_->cluster(), state.live) &&
        reachable(transfer.to, transfer.destination, context_->cluster(), state.live)) {
      continue;
    }
    breach(fmt::format("on_events().transfers[{}]", i), "one of its ends is not there");
  }
  if (decision.run_on.count < 0 &&
      (decision.resume_iteration < 0 || decision.resume_iteration > state.iteration)) {
    breach("on_events().resume_iteration",
           fmt::format("must be from 0 to {}, is {}", state.iteration, decision.resume_iteration));
  }
  if (decision.run_on.count >= 0 && (broken || !state.training)) {
    breach("on_events().run_on", "no plan runs that could run on", "leave it at -1");
  }
  int moves = 0;
  for (const models::RecoveryPhase& phase : decision.phases) {
    if (phase.duration.count < 0) breach("on_events().phases", "a negative duration");
    moves += phase.kind == models::RecoveryPhase::Kind::move_state ? 1 : 0;
  }
  if (moves > 1 || (moves == 0 && !decision.transfers.empty())) {
    breach("on_events().phases",
           fmt::format("{} phases of kind 'move_state' for {} transfers", moves,
                       decision.transfers.size()),
           "one if there are transfers, at most one otherwise");
  }
  return decision;
}

std::unique_ptr<PythonPolicy> make_python_policy(py::handle class_, const py::dict& settings,
                                                 const planners::PolicyInput& input,
                                                 std::shared_ptr<Context> context) {
  if (!context) context = copy_of(input.cluster, input.workload, input.job, input.profile);
  const auto questions = std::make_shared<PlannerQuestions>(&input.evaluator, nullptr);
  std::shared_ptr<void> asked = end_with(questions);
  const py::object given =
      py::module_::import("orrery.plugins")
          .attr("PolicyInput")(context, questions, input.interruptions_per_second,
                               input.plan ? to_python(*input.plan) : py::none(), input.seed,
                               to_python(input.runtime));
  return std::make_unique<PythonPolicy>(class_(given, **settings), std::move(context),
                                        std::move(asked));
}

void bind_plugins(py::module_& m) {
  py::class_<PlannerQuestions, std::shared_ptr<PlannerQuestions>>(m, "PlannerQuestions")
      .def("evaluate",
           [](const PlannerQuestions& self, const ir::Plan& plan, const Context& at) {
             require_valid(plan, at, "plan");
             const py::gil_scoped_release release;
             return evaluator_of(self).evaluate(plan);
           })
      .def_property_readonly("canceled", [](const PlannerQuestions& self) {
        return self.canceled != nullptr && *self.canceled;
      });
  m.def("search_for", [](std::shared_ptr<Context> context, const py::object& what,
                         const std::map<std::string, std::string>& options,
                         const PlannerQuestions& questions, const std::vector<DeviceId>& devices,
                         std::uint64_t seed) {
    return search(std::move(context), what, options, evaluator_of(questions), devices, seed, 0);
  });
}

}  // namespace orrery::python
