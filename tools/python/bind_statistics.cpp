// Random numbers, confidence intervals and what traces hold.
#include "experiments/study/replay_ranking.h"
#include "models/base/rng.h"
#include "sim/replay/replay.h"
#include "tools/python/bindings.h"
#include "tools/python/errors.h"
#include "traces/import/import.h"
#include "traces/statistics.h"

namespace orrery::python {

void bind_statistics(py::module_& m) {
  py::class_<Rng>(m, "Rng", "Seeded random numbers that are equal on every machine (SplitMix64).")
      .def(py::init<std::uint64_t>())
      .def("fork", &Rng::fork, "An independent stream for a key.")
      .def("uniform", &Rng::uniform, "In [0, 1).")
      .def("normal", &Rng::normal, "Mean 0, variance 1.")
      .def("exponential", &Rng::exponential, "Mean 1 / rate.");
  m.def("confidence", [](const std::vector<double>& values, double level) {
    if (!(level > 0 && level < 1)) throw py::value_error("level must be between 0 and 1");
    const experiments::Interval interval = experiments::confidence(values, (1 - level) / 2);
    return py::make_tuple(interval.mean, interval.half);
  });
  m.def("buckets", [] {
    std::vector<std::string> names;
    for (const auto& [bucket, name] : sim::enum_names(sim::Bucket{})) names.emplace_back(name);
    return names;
  });
  m.def("import_trace", [](const std::string& format, const std::string& path) {
    return checked([&](config::Diagnostics& problems) {
      return traces::import_trace(format, path, {}, problems);
    });
  });
  m.def("unexpected_interruptions",
        [](const traces::Trace& trace) { return traces::statistics_of(trace).unexpected; });
}

}  // namespace orrery::python
