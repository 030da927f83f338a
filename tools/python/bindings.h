/// The files of the module: each adds its part. To add bindings of your own, write
/// bind_<area>.cpp with one such function, and name it here, in module.cpp and in CMakeLists.txt.
#pragma once
#include "tools/python/caster.h"

namespace orrery::python {

void bind_values(py::module_& module);  ///< Plans, programs, clusters, ... as records.
void bind_files(py::module_& module);   ///< Loading, checking and writing them.
void bind_models(py::module_& module);  ///< Lowering, prices, memory, collectives, topologies.
void bind_recovery_kit(py::module_& module);  ///< Sources of state, closed forms of recovery.
void bind_simulation(py::module_& module);    ///< The simulator, in processes of its own.
void bind_statistics(py::module_& module);    ///< Random numbers, intervals, counts of traces.
void bind_calibration(py::module_& module);   ///< Errors of predictions, importers of profiles.
void bind_planning(py::module_& module);      ///< Planners and recovery policies, replay.
void bind_commands(py::module_& module);      ///< What the command line offers.
void bind_plugins(py::module_& module);       ///< What those written in Python may ask.

}  // namespace orrery::python
