// What calibration/ computes: errors of predictions, and Sailor's public profiles.
#include "calibration/compare/errors.h"
#include "calibration/importers/sailor.h"
#include "tools/python/bindings.h"
#include "tools/python/errors.h"

namespace orrery::python {
namespace {

void bind_errors(py::module_& m) {
  ORRERY_RECORD(m, calibration::ErrorSummary,
                "Errors of the rows of one set and metric, relative: absolute but for `bias`.", set,
                metric, rows, mean, median, max, bias, worst, target, published_best);
  m.def("summarize_errors", &calibration::summarize_errors, py::arg("set"), py::arg("metric"),
        py::arg("relative_errors"), py::arg("ids") = std::vector<std::string>(),
        "An ErrorSummary of signed relative errors; `ids` are those of the rows, for `worst`.");
  m.def("errors_csv", &calibration::errors_csv, py::arg("experiment"), py::arg("lines"),
        "The table of summaries that docs/accuracy.md is written from.");
}

void bind_sailor(py::module_& m) {
  ORRERY_RECORD(m, calibration::SailorLayerTime, "A run of layers with equal times, in seconds.",
                model, gpu, tensor_parallel, micro_batch_size, first_layer, last_layer, forward,
                backward);
  ORRERY_RECORD(m, calibration::SailorOptimizerTime, "AdamW on the whole profiled model.", model,
                gpu, tensor_parallel, micro_batch_size, step, parameters);
  ORRERY_RECORD(m, calibration::SailorLayerMemory,
                "A run of layers with equal memory: one GPU, micro-batch size 1.", model,
                tensor_parallel, first_layer, last_layer, parameters, parameter_bytes, input,
                output, saved_activations);
  ORRERY_RECORD(m, calibration::SailorBandwidth,
                "Sending between GPUs as a parabola in the size of the message.", inter_node,
                sender_gpu, sender_pairs, receiver_gpu, receiver_pairs, c2, c1, c0, most_measured,
                positive_from);
  ORRERY_RECORD(m, calibration::SailorTables, "The tables of Sailor's public profiles.",
                layer_times, optimizer_times, layer_memory, bandwidths);
  m.def(
      "read_sailor_tables",
      [](const std::string& folder) {
        return checked(
            [&](auto& problems) { return calibration::read_sailor_tables(folder, problems); });
      },
      py::arg("folder"), "The tables of a folder in the layout of Sailor's public data.");
  m.def(
      "import_sailor_profile",
      [](const std::string& folder) {
        return checked([&](auto& problems) {
          return calibration::import_sailor_profile(folder, {}, problems);
        });
      },
      py::arg("folder"), "The same tables as a Profile.");
  m.def(
      "sailor_rate",
      [](const calibration::SailorBandwidth& fit, double message) {
        return calibration::sailor_rate(fit, Bytes{message}).value;
      },
      py::arg("fit"), py::arg("message"),
      "Bytes per second of all pairs together when each sends this many bytes.");
  m.def("sailor_node_link", &calibration::sailor_node_link, py::arg("gpu"),
        "Link class of a node's path to other nodes, in the imported profile.");
  m.def("sailor_gpu_link", &calibration::sailor_gpu_link, py::arg("gpu"), py::arg("pairs"),
        "Link class of a GPU's share of its node's links when this many pairs send at once.");
}

}  // namespace

void bind_calibration(py::module_& m) {
  bind_errors(m);
  bind_sailor(m);
}

}  // namespace orrery::python
