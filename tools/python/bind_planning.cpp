// Planners and recovery policies by name or in Python, and replay.
#include <fmt/format.h>

#include <cmath>

#include "experiments/study/days.h"
#include "planners/catalog.h"
#include "planners/recovery/catalog.h"
#include "sim/replay/fixed_timer.h"
#include "sim/replay/replay.h"
#include "tools/python/bindings.h"
#include "tools/python/errors.h"
#include "tools/python/interrupt.h"
#include "tools/python/plugins.h"
#include "tools/python/remote.h"
#include "tools/python/search.h"
#include "traces/bind.h"
#include "traces/generate/generate.h"

namespace orrery::python {
namespace {

using Options = std::map<std::string, std::string>;

planners::Options listed(const Options& options) { return {options.begin(), options.end()}; }

/// Throws ConfigError with what is wrong with the options of a planner or policy.
template <class Entry>
void check_options(const Entry& entry, const Options& options) {
  config::Diagnostics problems;
  const std::vector<planners::OptionInfo> known = entry.options();
  for (const auto& [name, value] : options) {
    if (std::any_of(known.begin(), known.end(),
                    [&](const auto& info) { return info.name == name; })) {
      continue;
    }
    std::vector<std::string> names;
    for (const planners::OptionInfo& info : known) names.push_back(info.name);
    problems.add({"options." + name, 0, 0}, "no such option",
                 names.empty() ? "it has none" : config::suggest(name, names, "options"));
  }
  problems.raise();
  const config::Diagnostics found_problems = entry.check(listed(options));
  for (const config::Problem& problem : found_problems.problems()) {
    problems.add({"options." + problem.at.file, 0, 0}, problem.what, problem.hint);
  }
  problems.raise();
}

std::vector<DeviceId> devices_or_all(const std::optional<std::vector<DeviceId>>& given,
                                     const models::Cluster& cluster) {
  std::vector<DeviceId> devices;
  if (!given) {
    for (const models::Device& device : cluster.devices) devices.push_back(device.id);
    return devices;
  }
  devices = *given;
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  if (devices.empty()) throw py::value_error("no devices to plan for");
  if (!devices.front().valid() || devices.back().value >= cluster.size()) {
    throw py::index_error("the cluster has no such device");
  }
  return devices;
}

planners::PlannerResult ask(const planners::Planner& planner, const Context& at,
                            const models::Evaluator& evaluator,
                            const std::optional<std::vector<DeviceId>>& devices, std::uint64_t seed,
                            std::int64_t work_budget) {
  const Interruptible interruptible;
  const planners::PlannerInput input{.cluster = at.cluster(),
                                     .topology = at.topology(),
                                     .workload = at.workload(),
                                     .job = at.job(),
                                     .profile = at.profile(),
                                     .evaluator = evaluator,
                                     .devices = devices_or_all(devices, at.cluster()),
                                     .seed = seed,
                                     .work_budget = work_budget,
                                     .canceled = interruptible.flag()};
  std::optional<planners::PlannerResult> result;
  {
    const py::gil_scoped_release release;
    result = planner.plan(input);
  }
  interruptible.raise();
  return *std::move(result);
}

template <class Entry>
const Entry& found(const Entry* entry, const std::string& name, const char* kind,
                   const std::vector<std::string>& names) {
  if (entry == nullptr) {
    throw config::ConfigError({{{kind, 0, 0},
                                std::string("unknown ") + kind + " '" + name + "'",
                                config::suggest(name, names, "known")}});
  }
  return *entry;
}

/// A policy with everything that it refers to.
class Policy {
 public:
  Policy(std::shared_ptr<Context> context, std::shared_ptr<RemoteSimulator> judge, double rate,
         std::optional<ir::Plan> plan, std::uint64_t seed, models::Runtime runtime)
      : context_(std::move(context)),
        judge_(std::move(judge)),
        input_{.cluster = context_->cluster(),
               .topology = context_->topology(),
               .workload = context_->workload(),
               .job = context_->job(),
               .profile = context_->profile(),
               .evaluator = *judge_,
               .interruptions_per_second = rate,
               .plan = std::move(plan),
               .seed = seed,
               .runtime = std::move(runtime)} {}
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  const Context& context() const { return *context_; }
  const models::RecoveryPolicy& operator*() const { return *policy_; }
  const models::RecoveryPolicy* operator->() const { return policy_.get(); }
  /// Why the job on this cluster cannot have the policy; none: it has it.
  std::optional<models::Infeasible> make(const std::string& name, const Options& options) {
    const auto& entry =
        found(planners::find_policy(name), name, "policy", planners::policy_names());
    check_options(entry, options);
    planners::MadePolicy made;
    {
      const py::gil_scoped_release release;
      made = entry.make(input_, listed(options));
    }
    if (auto* infeasible = std::get_if<models::Infeasible>(&made)) return std::move(*infeasible);
    policy_ = std::get<std::unique_ptr<models::RecoveryPolicy>>(std::move(made));
    return std::nullopt;
  }
  void make(py::handle class_, const py::dict& settings) {
    policy_ = make_python_policy(class_, settings, input_, context_);
  }

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<RemoteSimulator> judge_;
  planners::PolicyInput input_;
  std::unique_ptr<models::RecoveryPolicy> policy_;
};

double number_from(const char* what, const py::object& given) {
  double value = 0;
  at_step(what, [&] { value = from_python<double>(given); });
  return value;
}

/// Times that a function of Python gives.
class PythonTimer final : public sim::IterationTimer, public models::TransferTimer {
 public:
  explicit PythonTimer(py::object function) : function_(std::move(function)) {}
  Seconds time(const ir::Plan& plan, const sim::IterationConditions& conditions) const override {
    const py::gil_scoped_acquire acquire;
    return {positive(function_(to_python(plan), to_python(conditions)))};
  }
  Nanoseconds time(const std::vector<models::StateTransfer>& transfers,
                   const models::DegradedLinks& links) const override {
    if (transfers.empty()) return {};
    const py::gil_scoped_acquire acquire;
    return to_nanoseconds(Seconds{positive(function_(to_python(transfers), to_python(links)))});
  }

 private:
  static double positive(const py::object& given) {
    const double seconds = number_from("a time", given);
    if (!(seconds > 0)) {
      throw py::value_error("a time must be positive, is " + std::to_string(seconds));
    }
    return seconds;
  }
  py::object function_;
};

/// Seconds; a table from devices to samples per second; a function; or a simulator.
std::shared_ptr<const sim::IterationTimer> iteration_timer(const py::object& given) {
  if (py::isinstance<RemoteSimulator>(given)) return given.cast<std::shared_ptr<RemoteSimulator>>();
  if (PyDict_Check(given.ptr())) {
    auto table = from_python<std::map<int, double>>(given);
    for (const auto& [devices, rate] : table) {
      if (devices < 1 || !(rate > 0)) throw py::value_error("samples per second must be positive");
    }
    if (table.empty() || table.begin()->first > 1) {
      throw py::value_error("iteration_time must say the samples per second of 1 device on");
    }
    return std::make_shared<sim::FixedIterationTimer>(std::move(table));
  }
  if (PyCallable_Check(given.ptr()) != 0) return std::make_shared<PythonTimer>(given);
  const double seconds = number_from("iteration_time", given);
  if (!(seconds >= 1e-9)) throw py::value_error("iteration_time must be positive");
  return std::make_shared<sim::FixedIterationTimer>(Seconds{seconds});
}

/// Seconds; a function; or a simulator.
std::shared_ptr<const models::TransferTimer> transfer_timer(const py::object& given) {
  if (py::isinstance<RemoteSimulator>(given)) return given.cast<std::shared_ptr<RemoteSimulator>>();
  if (PyCallable_Check(given.ptr()) != 0) return std::make_shared<PythonTimer>(given);
  const double seconds = number_from("transfer_time", given);
  if (seconds < 0) throw py::value_error("transfer_time must be zero or more");
  return std::make_shared<sim::FixedTransferTimer>(to_nanoseconds(Seconds{seconds}));
}

/// What write_trace() would write and read_trace() refuse, of a trace that was built in code.
void check_trace(const traces::Trace& trace, const models::Cluster& cluster,
                 const sim::ReplayOptions& options) {
  config::Diagnostics problems;
  if ((options.horizon.count > 0 ? options.horizon : trace.horizon).count <= 0) {
    problems.add({"trace.horizon", 0, 0}, "must be positive");
  }
  const auto known = [&](DeviceId device) {
    return device.valid() && device.value < cluster.size();
  };
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const ir::ClusterEvent& event = trace.events[i];
    const config::Position at{"trace.events[" + std::to_string(i) + "]", 0, 0};
    const bool node = event.scope.kind == ir::EventScope::Kind::node;
    if (node &&
        (!event.scope.node.valid() || event.scope.node.value >= std::ssize(cluster.nodes))) {
      problems.add(at, "no such node");
    }
    if (!std::all_of(event.scope.devices.begin(), event.scope.devices.end(), known)) {
      problems.add(at, "no such device");
    }
    if (!(event.factor > 0) || event.factor > 1) problems.add(at, "factor must be in (0, 1]");
    if (event.time.nanoseconds < 0 || (i > 0 && event.time < trace.events[i - 1].time)) {
      problems.add(at, "goes back in time", "orrery.sort_events()");
    }
  }
  problems.raise();
}

void bind_policies(py::module_& m) {
  py::class_<Policy, std::shared_ptr<Policy>>(m, "Policy")
      .def_property_readonly("name", [](const Policy& self) { return self->name(); })
      .def("first_plan",
           [](const Policy& self, const std::vector<DeviceId>& live) {
             const std::vector<DeviceId> devices = devices_or_all(live, self.context().cluster());
             const py::gil_scoped_release release;
             return self->first_plan(devices);
           })
      .def("checkpoints",
           [](const Policy& self, const ir::Plan& plan, double iteration_time) {
             require_valid(plan, self.context());
             if (!(iteration_time > 0) || !std::isfinite(iteration_time)) {
               throw py::value_error(
                   fmt::format("iteration_time must be positive, is {:g}", iteration_time));
             }
             const py::gil_scoped_release release;
             return self->checkpoints(plan, Seconds{iteration_time});
           })
      .def("on_events", [](const Policy& self, const models::JobState& state,
                           const std::vector<ir::ClusterEvent>& events) {
        const py::gil_scoped_release release;
        return self->on_events(state, events);
      });
  m.def("make_policy",
        [](std::shared_ptr<Context> context, std::shared_ptr<RemoteSimulator> judge,
           const py::object& what, const py::dict& settings, double rate,
           const std::optional<ir::Plan>& plan, std::uint64_t seed,
           const models::Runtime& runtime) -> py::object {
          if (!(rate >= 0) || !std::isfinite(rate)) {
            throw py::value_error(
                fmt::format("interruptions_per_second must be zero or more, is {:g}", rate));
          }
          auto policy = std::make_shared<Policy>(std::move(context), std::move(judge), rate, plan,
                                                 seed, runtime);
          if (!PyUnicode_Check(what.ptr())) {
            policy->make(what, settings);
          } else {
            Options options;
            for (const auto& [name, value] : settings) {
              options[detail::read_string(name)] = detail::value_from_python(value).text;
            }
            if (auto infeasible = policy->make(what.cast<std::string>(), options)) {
              return to_python(*std::move(infeasible));
            }
          }
          return py::cast(policy);
        });
  m.def("replay", [](const Policy& policy, const traces::Trace& trace,
                     const py::object& iteration_time, const py::object& transfer_time,
                     const sim::ReplayOptions& options, const py::object& progress) {
    const Context& at = policy.context();
    const traces::Trace bound = checked([&](config::Diagnostics& problems) {
      return traces::bind(trace, at.cluster(), {"trace", 0, 0}, problems);
    });
    check_trace(bound, at.cluster(), options);
    const auto iterations = iteration_timer(iteration_time);
    const auto transfers = transfer_timer(transfer_time);
    const Interruptible interruptible;
    const double horizon =
        static_cast<double>((options.horizon.count > 0 ? options.horizon : bound.horizon).count);
    std::optional<sim::ReplayResult> result;
    {
      const py::gil_scoped_release release;
      result = sim::replay({at.cluster(), at.job(), bound, *policy, *iterations, *transfers},
                           options, [&](Instant reached) {
                             if (progress.is_none() && !interruptible.requested()) return;
                             const py::gil_scoped_acquire acquire;
                             interruptible.raise();
                             if (progress.is_none()) return;
                             progress(static_cast<double>(reached.nanoseconds) / horizon);
                           });
    }
    interruptible.raise();
    return *std::move(result);
  });
}

template <class Entry>
py::dict entry_words(const Entry& entry) {
  py::dict words;
  words["name"] = entry.name;
  words["source"] = entry.source;
  words["options"] = to_python(entry.options());
  return words;
}

}  // namespace

planners::PlannerResult search(std::shared_ptr<Context> context, const py::object& what,
                               const Options& options, const models::Evaluator& evaluator,
                               const std::optional<std::vector<DeviceId>>& devices,
                               std::uint64_t seed, std::int64_t work_budget) {
  if (!PyUnicode_Check(what.ptr())) {
    const PythonPlanner planner(what, context);
    return ask(planner, *context, evaluator, devices, seed, work_budget);
  }
  const auto name = what.cast<std::string>();
  const auto& entry =
      found(planners::find_planner(name), name, "planner", planners::planner_names());
  check_options(entry, options);
  return ask(*entry.make(listed(options)), *context, evaluator, devices, seed, work_budget);
}

void bind_planning(py::module_& m) {
  bind_plugins(m);
  bind_policies(m);
  m.def("search", [](std::shared_ptr<Context> context, const py::object& what,
                     const Options& options, std::shared_ptr<RemoteSimulator> judge,
                     const std::optional<std::vector<DeviceId>>& devices, std::uint64_t seed,
                     std::int64_t work_budget) {
    return search(std::move(context), what, options, *judge, devices, seed, work_budget);
  });
  m.def("own_estimate", [](const Context& at, const std::string& name, const ir::Plan& plan) {
    const auto& entry =
        found(planners::find_planner(name), name, "planner", planners::planner_names());
    if (entry.estimate == nullptr) {
      throw py::value_error("the cost model of '" + name + "' judges only its own plans");
    }
    const NoEvaluator none;
    const planners::PlannerInput input{.cluster = at.cluster(),
                                       .topology = at.topology(),
                                       .workload = at.workload(),
                                       .job = at.job(),
                                       .profile = at.profile(),
                                       .evaluator = none,
                                       .devices = ir::devices_of(plan)};
    const auto own = entry.estimate(input, plan);
    if (const auto* no = std::get_if<models::Infeasible>(&own)) return to_python(*no);
    return py::object(py::float_(std::get<Seconds>(own).value));
  });
  m.def("planners", [] {
    py::list list;
    for (const planners::PlannerEntry* entry : planners::catalog()) {
      py::dict words = entry_words(*entry);
      words["searches"] = entry->searches;
      words["ignores"] = entry->ignores;
      list.append(words);
    }
    return list;
  });
  m.def("policies", [] {
    py::list list;
    for (const planners::RecoveryEntry* entry : planners::recovery_catalog()) {
      py::dict words = entry_words(*entry);
      words["recovers"] = entry->recovers;
      words["needs"] = entry->needs;
      list.append(words);
    }
    return list;
  });
  m.def("generate_trace", [](const std::string& generator, const models::Cluster& cluster,
                             double days, std::uint64_t seed,
                             const std::vector<std::string>& changes) {
    const traces::GeneratorNodes nodes = traces::nodes_of_cluster(cluster);
    const traces::TraceGenerator settings = checked([&](config::Diagnostics& problems) {
      auto loaded = traces::load_generator(generator, models::default_library_root(), changes,
                                           {"generator", 0, 0}, {"changes", 0, 0}, problems);
      if (!problems.empty()) return loaded;
      if (!(days >= experiments::kLeastDays) || days > experiments::kMostDays) {
        problems.add({"days", 0, 0}, fmt::format("must be from {} to {}", experiments::kLeastDays,
                                                 experiments::kMostDays));
        return loaded;
      }
      for (const std::string& what :
           traces::find_problems(loaded, nodes, to_nanoseconds(Seconds{days * 86400}))) {
        problems.add({"generator", 0, 0}, what);
      }
      return loaded;
    });
    const py::gil_scoped_release release;
    return traces::generate(settings, nodes, to_nanoseconds(Seconds{days * 86400}), seed);
  });
}

}  // namespace orrery::python
