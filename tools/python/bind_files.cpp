// Loading, checking and writing the values of bind_values.cpp.
#include "models/cost/memory.h"
#include "models/ir/wire.h"
#include "models/spec/cluster_text.h"
#include "models/spec/library.h"
#include "models/spec/model_file.h"
#include "models/spec/plan_yaml.h"
#include "models/spec/profile_yaml.h"
#include "tools/python/bindings.h"
#include "tools/python/errors.h"
#include "tools/python/settings.h"
#include "traces/bind.h"
#include "traces/csv.h"
#include "traces/generate/generate.h"

namespace orrery::python {
namespace {

config::Position at(const char* argument) { return {argument, 0, 0}; }

template <class T>
std::vector<std::string> keys(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

/// The tree with its schema, which code need not say.
py::dict with_schema(const py::dict& tree, const char* schema) {
  const py::dict copy = tree.attr("copy")();
  copy.attr("setdefault")("schema", schema);
  return copy;
}

/// The value, or ValueError in words.
template <class T>
T parsed(std::variant<T, std::string> outcome) {
  if (const auto* problem = std::get_if<std::string>(&outcome)) throw py::value_error(*problem);
  return std::get<T>(std::move(outcome));
}

void bind_library(py::module_& m) {
  m.def("load_cluster", [](const std::string& name) {
    return checked([&](auto& problems) {
      return models::load_cluster(name, library(), at("cluster"), problems);
    });
  });
  m.def("cluster_from", [](const py::dict& tree) {
    const py::dict whole = with_schema(tree, "orrery/cluster/1");
    return checked([&](auto& problems) {
      return models::read_cluster(tree_of(whole, models::cluster_file_type(), "cluster"), library(),
                                  problems);
    });
  });
  m.def("cluster_yaml", &models::dump_cluster);
  m.def("load_model", [](const std::string& name) {
    return checked(
        [&](auto& problems) { return models::load_model(name, library(), at("model"), problems); });
  });
  m.def("load_workload", [](const std::string& name, const models::Job& job) {
    return checked([&](auto& problems) {
      return models::load_workload(name, job, library(), at("model"), problems);
    });
  });
  m.def("build_workload", [](const ir::ModelShape& shape, const models::Job& job) {
    return checked([&](config::Diagnostics& problems) {
      for (const models::ShapeProblem& problem : models::check_shape(shape)) {
        problems.add(at((std::string("model.") + problem.field).c_str()), problem.what);
      }
      return problems.empty() ? models::build_workload(shape, job.sequence_length, job.dtype)
                              : models::Workload{};
    });
  });
  m.def("library", [] {
    const models::Library& all = library();
    py::dict names;
    names["clusters"] = to_python(keys(all.clusters));
    names["models"] = to_python(keys(all.models));
    names["profiles"] = to_python(keys(all.profiles));
    names["gpus"] = to_python(all.gpus);
    names["links"] = to_python(all.links);
    return names;
  });
}

void bind_job_and_plan(py::module_& m) {
  m.def("load_job", [](const std::string& path) {
    return checked([&](auto& problems) { return models::load_job(path, problems); });
  });
  m.def("job_from", [](const py::dict& tree) {
    return described<models::Job>(with_schema(tree, "orrery/job/1"), "job");
  });
  m.def("job_yaml", [](const models::Job& job) { return config::dump(job); });
  m.def("load_plan", [](const std::string& path) {
    return checked([&](auto& problems) { return models::load_plan(path, problems); });
  });
  m.def("plan_from", [](const py::dict& tree) {
    return described<ir::Plan>(with_schema(tree, "orrery/plan/1"), "plan");
  });
  m.def("plan_yaml", &models::dump_plan);
  m.def("plan_hash", &models::plan_hash);
  m.def("load_profile", [](const std::string& name) {
    const auto known = library().profiles.find(name);
    const std::string& path = known == library().profiles.end() ? name : known->second;
    return checked([&](auto& problems) { return models::load_profile(path, problems); });
  });
  m.def("profile_from", [](const py::dict& tree) {
    return described<ir::Profile>(with_schema(tree, "orrery/profile/1"), "profile");
  });
  m.def("profile_yaml", &models::dump_profile);
}

void bind_programs(py::module_& m) {
  m.def("program_bytes",
        [](const ir::Program& program) { return py::bytes(ir::serialize(program)); });
  m.def("parse_program", [](const std::string& bytes) { return parsed(ir::parse_program(bytes)); });
  m.def("program_hash", [](const ir::Program& program) { return ir::program_hash(program); });
  m.def("run_log_bytes", [](const ir::RunLog& log) { return py::bytes(ir::serialize(log)); });
  m.def("parse_run_log", [](const std::string& bytes) { return parsed(ir::parse_run_log(bytes)); });
}

void bind_traces(py::module_& m) {
  m.def("load_trace", [](const std::string& path) {
    return checked([&](auto& problems) { return traces::read_trace(path, problems); });
  });
  m.def("trace_text", [](const traces::Trace& trace) { return traces::write_trace(trace); });
  m.def("sort_events", [](const traces::Trace& trace) {
    traces::Trace sorted = trace;
    traces::sort_events(sorted);
    return sorted;
  });
  m.def("bind_trace", [](const traces::Trace& trace, const models::Cluster& cluster) {
    return checked(
        [&](auto& problems) { return traces::bind(trace, cluster, at("trace"), problems); });
  });
  m.def("combine_traces", [](const std::vector<traces::Trace>& several) {
    if (several.empty()) throw py::value_error("no traces to combine");
    return traces::combine(several);
  });
}

}  // namespace

const models::Library& library() {
  static const models::Library kLibrary = checked([](auto& problems) {
    return models::load_library(models::default_library_root(), problems);
  });
  return kLibrary;
}

void bind_files(py::module_& m) {
  bind_library(m);
  bind_job_and_plan(m);
  bind_programs(m);
  bind_traces(m);
  record_info<models::Cluster>().settle = [](void* value) {
    auto& cluster = *static_cast<models::Cluster*>(value);
    checked([&](auto& problems) {
      models::check_cluster(cluster, problems);
      return 0;
    });
    models::seal(cluster);
  };
  record_info<models::Job>().settle = [](void* job) {
    check_described(*static_cast<models::Job*>(job), "job");
  };
  record_info<ir::Plan>().settle = [](void* plan) {
    check_described(*static_cast<ir::Plan*>(plan), "plan");
  };
  record_info<ir::Profile>().settle = [](void* profile) {
    check_described(*static_cast<ir::Profile*>(profile), "profile");
  };
}

}  // namespace orrery::python
