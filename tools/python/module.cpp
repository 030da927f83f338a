// The module orrery._orrery: what the files bind_*.cpp add, and how errors cross.
#include "experiments/study/version.h"
#include "models/config/diagnostics.h"
#include "planners/modules/modules.h"
#include "tools/python/bindings.h"
#include "tools/python/catalogs.h"

namespace py = pybind11;

namespace {

/// orrery.ConfigError with its problems.
void set_config_error(const orrery::config::ConfigError& error) {
  py::list problems;
  const py::module_ errors = py::module_::import("orrery.errors");
  for (const orrery::config::Problem& problem : error.problems) {
    problems.append(errors.attr("Problem")(problem.at.file, problem.at.line, problem.at.column,
                                           problem.what, problem.hint));
  }
  const py::object type = errors.attr("ConfigError");
  PyErr_SetObject(type.ptr(), py::tuple(py::make_tuple(problems)).ptr());
}

}  // namespace

PYBIND11_MODULE(_orrery, module) {
  module.doc() = "Orrery's C++; use it through the package orrery.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const orrery::config::ConfigError& error) {
      set_config_error(error);
    } catch (const orrery::python::Mismatch& mismatch) {
      raise(mismatch);
    }
  });
  orrery::config::Diagnostics problems;
  orrery::planners::load_modules_of_environment(problems);
  problems.raise();
  module.attr("version") = orrery::experiments::program_version();
  orrery::python::bind_values(module);
  orrery::python::bind_calibration(module);
  orrery::python::bind_files(module);
  orrery::python::bind_models(module);
  orrery::python::bind_recovery_kit(module);
  orrery::python::bind_simulation(module);
  orrery::python::bind_statistics(module);
  orrery::python::bind_planning(module);
  orrery::python::bind_commands(module);
  orrery::python::offer_plugins();
}
