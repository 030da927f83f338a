// What models/ computes: lowering, checks, prices, memory, collectives, topologies, utilization.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <tuple>

#include "models/check/validate.h"
#include "models/cost/collective.h"
#include "models/cost/kernels.h"
#include "models/cost/memory.h"
#include "models/cost/mfu.h"
#include "models/cost/pricer.h"
#include "models/ir/breakdown.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"
#include "models/ir/wire.h"
#include "models/lower/lower.h"
#include "models/reshard/reshard_plan.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "planners/kit/plan_parts.h"
#include "tools/python/bindings.h"
#include "tools/python/context.h"
#include "tools/python/errors.h"

namespace orrery::python {
namespace {

/// A number that a caller gives to a closed form.
void require(bool good, const char* what, double is) {
  if (!good) throw py::value_error(fmt::format("{}, is {:g}", what, is));
}

DeviceId device_of(int id, const models::Cluster& cluster) {
  if (id < 0 || id >= cluster.size()) {
    throw py::index_error("the cluster has no device " + std::to_string(id));
  }
  return {id};
}

void bind_context(py::module_& m) {
  py::class_<Context, std::shared_ptr<Context>>(m, "Context")
      .def(py::init([](const Shared<models::Cluster>& cluster,
                       const Shared<models::Workload>& workload, const Shared<models::Job>& job,
                       const Shared<ir::Profile>& profile) {
        return std::make_shared<Context>(cluster.pointer, workload.pointer, job.pointer,
                                         profile.pointer);
      }))
      .def_property_readonly("cluster",
                             [](const Context& at) { return Shared{at.cluster_pointer()}; })
      .def_property_readonly("workload",
                             [](const Context& at) { return Shared{at.workload_pointer()}; })
      .def_property_readonly("job", [](const Context& at) { return Shared{at.job_pointer()}; })
      .def_property_readonly("profile",
                             [](const Context& at) { return Shared{at.profile_pointer()}; })
      .def("validate",
           [](const Context& at, const ir::Plan& plan) {
             return models::validate(plan, at.cluster(), at.workload(), at.job());
           })
      .def("unsupported",
           [](const Context&, const ir::Plan& plan) { return models::find_unsupported(plan); })
      .def("require_valid",
           [](const Context& at, const ir::Plan& plan) { require_valid(plan, at); })
      .def("lower",
           [](const Context& at, const ir::Plan& plan, const models::LowerOptions& options) {
             require_valid(plan, at);
             const py::gil_scoped_release release;
             ir::Program program =
                 models::lower(plan, at.cluster(), at.workload(), at.job(), options);
             program.header.plan_hash = models::plan_hash(plan);
             return program;
           })
      .def("memory",
           [](const Context& at, const ir::Plan& plan) {
             require_valid(plan, at);
             return models::check_memory(plan, at.cluster(), at.workload(), at.job(), at.profile());
           })
      .def("segment_memory",
           [](const Context& at, const ir::Segment& segment, const ir::Group& group, int replicas) {
             if (!segment.first_block.valid() || segment.last_block < segment.first_block ||
                 segment.last_block.value >= at.workload().size()) {
               throw py::index_error(fmt::format("the model has no blocks {} to {}",
                                                 segment.first_block.value,
                                                 segment.last_block.value));
             }
             if (group.devices.empty()) throw py::value_error("the group has no devices");
             require(group.tensor_parallel >= 1, "tensor_parallel must be at least 1",
                     group.tensor_parallel);
             require(group.sequence_degree >= 1, "sequence_degree must be at least 1",
                     group.sequence_degree);
             require(replicas >= 1, "replicas must be at least 1", replicas);
             return models::segment_memory(segment, group, replicas, at.workload(), at.job());
           })
      .def("evaluation_of",
           [](const Context& at, const ir::Plan& plan, double seconds) {
             require_valid(plan, at);
             require(seconds > 0 && std::isfinite(seconds), "seconds must be positive", seconds);
             return models::evaluation_of(
                 plan, at.cluster(), at.workload(), Seconds{seconds},
                 models::check_memory(plan, at.cluster(), at.workload(), at.job(), at.profile()));
           })
      .def("tokens_per_second",
           [](const Context& at, const ir::Plan& plan, double seconds) {
             require(seconds > 0 && std::isfinite(seconds), "seconds must be positive", seconds);
             return models::tokens_per_second(plan, at.workload(), Seconds{seconds});
           })
      .def("block_time",
           [](const Context& at, const models::BlockQuery& query) {
             if (query.gpu_type < 0 || query.gpu_type >= std::ssize(at.cluster().gpu_types)) {
               throw py::index_error("no such GPU type");
             }
             if (!query.block.valid() || query.block.value >= at.workload().size()) {
               throw py::index_error("no such block");
             }
             require(query.tensor_parallel >= 1, "tensor_parallel must be at least 1",
                     query.tensor_parallel);
             require(query.sequence_degree >= 1, "sequence_degree must be at least 1",
                     query.sequence_degree);
             require(query.samples >= 1, "samples must be at least 1", query.samples);
             require(query.expert_parallel >= 1, "expert_parallel must be at least 1",
                     query.expert_parallel);
             require(query.experts >= 0, "experts must be zero or more", query.experts);
             require(query.expert_samples >= 0, "expert_samples must be zero or more",
                     query.expert_samples);
             if (query.pass == ir::Pass::optimizer) {
               throw py::value_error("pass_ 'optimizer' is no pass over a block: optimizer_time()");
             }
             return at.pricer().block(query).value;
           })
      .def("optimizer_time",
           [](const Context& at, int gpu_type, double parameters) {
             if (gpu_type < 0 || gpu_type >= std::ssize(at.cluster().gpu_types)) {
               throw py::index_error("no such GPU type");
             }
             require(parameters >= 0 && std::isfinite(parameters),
                     "parameters must be zero or more", parameters);
             return at.pricer().optimizer(gpu_type, parameters).value;
           })
      .def("op_times",
           [](const Context& at, const ir::Program& program) {
             check_program(program, at.cluster(), at.workload());
             const models::ProgramPrices prices(program, at.pricer());
             std::vector<double> times(program.ops.size());
             for (std::size_t i = 0; i < times.size(); ++i) {
               times[i] = prices.compute({static_cast<std::int32_t>(i)}).value;
             }
             return times;
           })
      .def("used_entries", [](const Context& at) { return at.pricer().used_entries(); });
}

/// `price` is called once for all compute ops that are equal but for rank and micro-batch.
py::list price_ops(const ir::Program& program, const py::function& price) {
  std::map<std::tuple<ir::OpKind, std::int32_t, std::int32_t, double>, py::object> known;
  const py::float_ nothing(0.0);
  py::list times(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    py::object time = nothing;
    if (ir::is_compute(op.kind)) {
      const auto [entry, fresh] =
          known.try_emplace({op.kind, op.segment, op.samples, op.bytes.value});
      if (fresh) entry->second = py::float_(price(op).cast<double>());
      time = entry->second;
    }
    times[i] = std::move(time);
  }
  return times;
}

void bind_topology(py::module_& m) {
  py::class_<NetworkTopology, std::shared_ptr<NetworkTopology>>(m, "Topology")
      .def(py::init([](const Shared<models::Cluster>& cluster, const ir::Profile& profile) {
        return std::make_shared<NetworkTopology>(cluster.pointer, profile);
      }))
      .def("links", [](const NetworkTopology& at) { return at.links(); })
      .def(
          "nic_of",
          [](const NetworkTopology& at, int device) {
            return at->nic_of(device_of(device, at.cluster()));
          },
          "Position in Node.nics of the card that a device uses; -1: none.")
      .def("path",
           [](const NetworkTopology& at, int a, int b) {
             const models::Path path =
                 at->path(device_of(a, at.cluster()), device_of(b, at.cluster()));
             const char* kind = "";
             for (const auto& [each, text] : models::enum_names(path.kind)) {
               if (each == path.kind) kind = text;
             }
             py::dict out;
             out["bandwidth"] = path.bandwidth.value;
             out["latency"] = path.latency.value;
             out["kind"] = kind;
             return out;
           })
      .def("route",
           [](const NetworkTopology& at, int a, int b) {
             std::vector<LinkId> links;
             at->route(device_of(a, at.cluster()), device_of(b, at.cluster()), links);
             return links;
           })
      .def("collective_time",
           [](const NetworkTopology& at, ir::CollectiveKind kind, const std::string& algorithm,
              const std::vector<DeviceId>& group, double bytes) {
             using models::CollectiveAlgorithm;
             CollectiveAlgorithm chosen = CollectiveAlgorithm::ring;
             if (algorithm == "tree") {
               chosen = CollectiveAlgorithm::tree;
             } else if (algorithm == "hierarchical") {
               chosen = CollectiveAlgorithm::hierarchical;
             } else if (algorithm != "ring") {
               throw py::value_error("algorithm: ring, tree or hierarchical, not " + algorithm);
             }
             for (const DeviceId device : group) device_of(device.value, at.cluster());
             if (group.empty()) throw py::value_error("the group is empty");
             return models::collective_time(kind, chosen, group, Bytes{bytes}, at.path_function())
                 .value;
           })
      .def("collective_flows",
           [](const NetworkTopology& at, ir::CollectiveKind kind,
              const std::vector<DeviceId>& group, double bytes) {
             for (const DeviceId device : group) device_of(device.value, at.cluster());
             if (group.empty()) throw py::value_error("the group is empty");
             return models::collective_flows(kind, group, Bytes{bytes}, at.path_function());
           })
      .def("point_to_point_time", [](const NetworkTopology& at, int a, int b, double bytes) {
        return models::point_to_point_time(device_of(a, at.cluster()), device_of(b, at.cluster()),
                                           Bytes{bytes}, at.path_function())
            .value;
      });
}

/// ValueError where the kernels do not know the number format.
ir::Dtype known_dtype(const models::Kernels& at, ir::Dtype dtype) {
  if (!at.computes(dtype) || !at.computes(ir::Dtype::bf16)) {
    throw py::value_error(std::string("the kernels of ") + at.model().gpu +
                          " have no products in " +
                          ir::name_of(at.computes(dtype) ? ir::Dtype::bf16 : dtype));
  }
  return dtype;
}

void bind_kernels(py::module_& m) {
  using models::Kernels;
  py::class_<Kernels>(m, "Kernels",
                      "Times of blocks by the shapes of their kernels on one GPU type: "
                      "Kernels(model, memory_bandwidth) [models/cost/kernels.h].")
      .def(py::init([](const ir::KernelModel& model, double memory_bandwidth) {
        return Kernels(model, BytesPerSecond{memory_bandwidth});
      }))
      .def(
          "model", [](const Kernels& at) { return at.model(); }, "What the profile says of them.")
      .def(
          "product",
          [](const Kernels& at, double m, double n, double k, ir::Dtype dtype, double batch) {
            return at.product(m, n, k, known_dtype(at, dtype), batch).value;
          },
          py::arg("m"), py::arg("n"), py::arg("k"), py::arg("dtype"), py::arg("batch") = 1.0,
          "Seconds of `batch` products of m x k by k x n.")
      .def(
          "streaming", [](const Kernels& at, double bytes) { return at.streaming(bytes).value; },
          py::arg("bytes"), "Seconds of kernels that move this many bytes through memory.")
      .def(
          "linear",
          [](const Kernels& at, double m, double n, double k,
             const models::KernelDegrees& degrees) {
            known_dtype(at, degrees.products);
            return at.linear(m, n, k, degrees);
          },
          "Both passes of a weight matrix of k x n on m rows.")
      .def(
          "attention",
          [](const Kernels& at, const models::KernelLayer& layer,
             const models::KernelDegrees& degrees) {
            known_dtype(at, degrees.products);
            return at.attention(layer, degrees);
          },
          "Both passes of a layer's attention.")
      .def(
          "layer",
          [](const Kernels& at, const models::KernelLayer& layer,
             const models::KernelDegrees& degrees) {
            known_dtype(at, degrees.products);
            return at.layer(layer, degrees);
          },
          "Both passes of a layer.")
      .def(
          "embedding",
          [](const Kernels& at, int hidden, const models::KernelDegrees& degrees) {
            return at.embedding(hidden, degrees);
          },
          "Both passes of an embedding.")
      .def(
          "head",
          [](const Kernels& at, int hidden, int vocabulary, const models::KernelDegrees& degrees) {
            known_dtype(at, degrees.products);
            return at.head(hidden, vocabulary, degrees);
          },
          "Both passes of the head.")
      .def(
          "optimizer",
          [](const Kernels& at, double parameters, const models::StateBytes& bytes) {
            return at.optimizer(parameters, bytes).value;
          },
          "Seconds of a step over so many parameters.");
  m.def("kernel_layer",
        py::overload_cast<const ir::ModelShape&, ir::BlockKind>(&models::kernel_layer),
        py::arg("shape"), py::arg("kind"),
        "The layer that a ModelShape describes, of kind transformer or moe.");
}

void bind_plan_parts(py::module_& m) {
  m.def("plan_devices", [](const ir::Plan& plan) { return ir::devices_of(plan); });
  m.def("working_devices", [](const ir::Plan& plan) { return ir::working_devices(plan); });
  m.def("stage_devices", [](const ir::Stage& stage) { return ir::devices_of(stage); });
  m.def("global_batch", [](const ir::Plan& plan) { return ir::global_batch(plan); });
  m.def("plan_words", [](const ir::Plan& plan, const models::Workload& workload) {
    return planners::in_words(plan, workload);
  });
  m.def("count_layers", [](const models::Workload& w) { return planners::count_layers(w); });
  m.def("segment_of_layers", [](const models::Workload& workload, int first, int layers) {
    if (first < 0 || layers < 1 || first + layers > planners::count_layers(workload)) {
      throw py::index_error("the model has " + std::to_string(planners::count_layers(workload)) +
                            " layers");
    }
    return planners::segment_of_layers(workload, first, layers);
  });
  m.def("block_parameters", [](const models::Block& block) { return models::parameters(block); });
  m.def("parameters", [](const models::Workload& w) { return models::parameters(w); });
  m.def("model_flops", [](const models::Workload& w) { return models::model_flops(w).value; });
  m.def("memory_fits", [](const ir::MemoryVerdict& verdict) { return verdict.fits(); });
  m.def("memory_words", [](const ir::MemoryVerdict& verdict) { return verdict.explain(); });
  m.def(
      "price_ops", &price_ops, py::arg("program"), py::arg("price"),
      "Seconds of each op of a program, for Training.simulate(op_times=...), by a function of your "
      "own: price(op) is called once for all compute ops that are equal but for rank and "
      "micro-batch; other ops have no price.");
  m.def(
      "settled", [](const Shared<ir::Program>& program) { return program; }, py::arg("program"),
      "The same program in a record of which nothing was read: it is passed on as it is, where one "
      "whose lists were given out or set is converted anew each time.");
  m.def("find_defect", [](const ir::Program& program) { return ir::find_defect(program); });
  m.def("peak_memory", [](const ir::Program& program) {
    check_program(program);
    return models::peak_memory(program);
  });
}

}  // namespace

void require_valid(const ir::Plan& plan, const Context& at, const std::string& where) {
  auto defects = models::validate(plan, at.cluster(), at.workload(), at.job());
  if (defects.empty()) defects = models::find_unsupported(plan);
  config::Diagnostics problems;
  for (const models::PlanDefect& defect : defects) {
    problems.add({where + "." + defect.path, 0, 0}, defect.what, defect.hint);
  }
  problems.raise();
}

void check_program(const ir::Program& program) {
  if (const std::string defect = ir::find_defect(program); !defect.empty()) {
    throw py::value_error("the program is not well formed: " + defect);
  }
}

void check_program(const ir::Program& program, const models::Cluster& cluster,
                   const models::Workload& workload) {
  check_program(program);
  for (const ir::Rank& rank : program.ranks) {
    for (const DeviceId device : rank.devices) device_of(device.value, cluster);
  }
  for (const ir::CommunicationGroup& group : program.groups) {
    for (const DeviceId device : group.devices) device_of(device.value, cluster);
  }
  for (const ir::SegmentInfo& segment : program.segments) {
    if (segment.last_block.value >= workload.size()) {
      throw py::index_error("the model has no block " + std::to_string(segment.last_block.value));
    }
  }
}

void bind_models(py::module_& m) {
  bind_context(m);
  bind_topology(m);
  bind_kernels(m);
  bind_plan_parts(m);
}

}  // namespace orrery::python
