// The simulator: sessions in processes of their own, asked from here.
#include <fmt/format.h>

#include "models/base/check.h"
#include "sim/iteration/iteration.h"
#include "tools/python/bindings.h"
#include "tools/python/channel.h"
#include "tools/python/remote.h"

namespace orrery::python {

namespace {

/// Called without the GIL when a signal interrupts a wait: lets Python raise KeyboardInterrupt.
void raise_signals() {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

RemoteSimulator::RemoteSimulator(int socket, std::shared_ptr<const Context> context,
                                 const sim::IterationOptions& options, bool for_replay)
    : context_(std::move(context)), undisturbed_(!options.noisy()), channel_(socket) {
  ask(kSetUp, pack(context_->cluster(), context_->profile(), context_->workload(), context_->job(),
                   options, for_replay));
}

std::string RemoteSimulator::ask(char kind, const std::string& bytes) const {
  if (process_ != getpid()) {
    throw ChannelError("this simulator is of the process that forked this one: make another one");
  }
  if (std::exchange(broken_, true)) {
    throw ChannelError("this simulator was interrupted: make another one");
  }
  std::optional<Channel::Message> answer;
  {
    std::optional<py::gil_scoped_release> release;
    if (PyGILState_Check() != 0) release.emplace();
    channel_.send(kind, bytes);
    answer = channel_.receive(raise_signals);
  }
  if (!answer) throw ChannelError("the simulator's process ended without an answer");
  broken_ = false;
  if (answer->kind == kFailure) throw ChannelError(answer->bytes);
  return std::move(answer->bytes);
}

void RemoteSimulator::hold(const Shared<ir::Program>& program) const {
  if (program.pointer == program_) return;
  check_program(*program.pointer, context_->cluster(), context_->workload());
  program_.reset();
  ask(kProgram, pack(*program.pointer));
  program_ = program.pointer;
}
sim::IterationResult RemoteSimulator::run(const Shared<ir::Program>& program,
                                          const std::vector<Seconds>& times,
                                          const sim::IterationOptions& options) const {
  hold(program);
  return std::get<0>(unpack<sim::IterationResult>(ask(kRun, pack(times, options))));
}
models::Evaluation RemoteSimulator::evaluate(const ir::Plan& plan) const {
  return std::get<0>(unpack<models::Evaluation>(ask(kEvaluate, pack(plan))));
}
Seconds RemoteSimulator::time(const ir::Plan& plan,
                              const sim::IterationConditions& conditions) const {
  return std::get<0>(unpack<Seconds>(ask(kIteration, pack(plan, conditions))));
}
Nanoseconds RemoteSimulator::time(const std::vector<models::StateTransfer>& transfers,
                                  const models::DegradedLinks& links) const {
  return std::get<0>(unpack<Nanoseconds>(ask(kTransfer, pack(transfers, links))));
}

namespace {

/// Seconds that the ops of a program may take in all: 31 years, so that every end is a point in
/// time.
constexpr double kLongestProgram = 1e9;

void check_options(const sim::IterationOptions& options, const Context& at) {
  config::Diagnostics problems;
  for (const std::string& what : sim::find_problems(options, at.cluster(), at.topology())) {
    problems.add({"options", 0, 0}, what);
  }
  problems.raise();
}

}  // namespace

void bind_simulation(py::module_& m) {
  m.def("serve", [](int socket) {
    const py::gil_scoped_release release;  // Planners of Python take it where they run.
    serve(socket);
  });
  py::class_<RemoteSimulator, std::shared_ptr<RemoteSimulator>>(m, "RemoteSimulator")
      .def(py::init([](int socket, std::shared_ptr<Context> context,
                       const sim::IterationOptions& options, bool for_replay) {
        check_options(options, *context);
        return std::make_shared<RemoteSimulator>(socket, std::move(context), options, for_replay);
      }))
      .def("run",
           [](const RemoteSimulator& self, const Shared<ir::Program>& program,
              const std::vector<Seconds>& times, const sim::IterationOptions& options) {
             if (program.pointer == nullptr) throw py::type_error("a Program, not None");
             const std::size_t ops = program.pointer->ops.size();
             check_options(options, self.context());
             if (!times.empty() && times.size() != ops) {
               throw py::value_error("op_times has " + std::to_string(times.size()) +
                                     " entries for " + std::to_string(ops) + " ops");
             }
             double total = 0;
             for (std::size_t i = 0; i < times.size(); ++i) {
               if (!(times[i].value >= 0)) {
                 throw py::value_error(
                     fmt::format("op_times[{}] must be zero or more, is {:g}", i, times[i].value));
               }
               total += times[i].value;
             }
             if (!(total <= kLongestProgram)) {
               throw py::value_error(
                   fmt::format("op_times add up to {:g} s, at most {:g}", total, kLongestProgram));
             }
             return self.run(program, times, options);
           })
      .def("seconds_of_run",
           [](const RemoteSimulator& self, const Shared<ir::Program>& program,
              const sim::IterationOptions& options) {
             self.hold(program);
             const std::string question = pack(std::vector<Seconds>{}, options);
             return std::get<0>(unpack<double>(self.ask(kTimedRun, question)));
           })
      .def_property_readonly("usable", &RemoteSimulator::usable)
      .def("evaluate",
           [](const RemoteSimulator& self, const ir::Plan& plan) {
             require_valid(plan, self.context());
             return self.evaluate(plan);
           })
      .def("iteration_time",
           [](const RemoteSimulator& self, const ir::Plan& plan,
              const sim::IterationConditions& conditions) {
             require_valid(plan, self.context());
             return self.time(plan, conditions).value;
           })
      .def("transfer_time",
           [](const RemoteSimulator& self, const std::vector<models::StateTransfer>& transfers,
              const models::DegradedLinks& links) { return self.time(transfers, links).count; })
      .def("simgrid", [](const RemoteSimulator& self) {
        using Options = std::vector<std::pair<std::string, std::string>>;
        return std::get<0>(unpack<Options>(self.ask(kConfig, "")));
      });
}

}  // namespace orrery::python
