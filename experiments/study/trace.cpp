#include "experiments/study/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/spec/library.h"
#include "traces/bind.h"
#include "traces/csv.h"
#include "traces/generate/generate.h"
#include "traces/names.h"
#include "traces/repeat.h"

namespace orrery::experiments {
namespace {

using config::Diagnostics;

constexpr std::int64_t kMostGpusPerNode = 1024;  ///< As of `# nodes:` in a trace.
constexpr std::int64_t kMostNodes = 1'000'000;
constexpr std::int64_t kMostGpus = 10'000'000;

/// Those of --cluster, or equal ones.
traces::GeneratorNodes generator_nodes(const TraceGenerateSettings& args,
                                       Diagnostics& diagnostics) {
  if (args.cluster) {
    for (const auto& [key, given] : {std::pair{"gpus", args.gpus.has_value()},
                                     {"gpus_per_node", args.gpus_per_node.has_value()},
                                     {"gpu_type", args.gpu_type.has_value()}}) {
      if (given) diagnostics.add(at_setting(key), "says what --cluster says");
    }
    const models::Library library = open_library(diagnostics);
    const models::Cluster cluster =
        models::load_cluster(*args.cluster, library, at_setting("cluster"), diagnostics);
    // One with problems has ids that are not valid.
    return diagnostics.empty() ? traces::nodes_of_cluster(cluster) : traces::GeneratorNodes{};
  }
  if (!args.gpus) {
    diagnostics.add(at_setting("gpus"), "is missing", "--cluster NAME, or --gpus N");
    return {};
  }
  if (!diagnostics.empty()) return {};
  const std::int64_t gpus = *args.gpus;
  const int per_node = static_cast<int>(args.gpus_per_node.value_or(8));
  const std::string type = args.gpu_type.value_or("");
  if (const std::string bad = type.empty() ? "" : traces::bad_node_name(type); !bad.empty()) {
    diagnostics.add(at_setting("gpu_type"), fmt::format("'{}' is no name of a GPU type", type));
  }
  if (gpus > kMostGpus || per_node > gpus || gpus % per_node != 0) {
    diagnostics.add(at_setting("gpus"), fmt::format("{} GPUs in nodes of {}", gpus, per_node),
                    fmt::format("a multiple of --gpus-per-node, at most {}", kMostGpus));
    return {};
  }
  return traces::equal_nodes(static_cast<int>(gpus / per_node), per_node, type);
}

/// What only logs have.
void read_log_settings(const TraceImportSettings& args, bool log, traces::ImportOptions& options,
                       Diagnostics& diagnostics) {
  const auto refuse = [&](bool given, const char* key, const char* whose) {
    if (given) diagnostics.add(at_setting(key), fmt::format("is for {} only", whose));
  };
  if (args.format != "csv") {
    for (const auto& [key, value] : {std::pair("time", args.time),
                                     {"node", args.node},
                                     {"event", args.event},
                                     {"cause", args.cause}}) {
      refuse(value.has_value(), key, "csv");
    }
    refuse(!args.map.empty(), "map", "csv");
  }
  if (!log) {
    refuse(args.repair_after.has_value(), "repair_after", "csv, slurm and xid");
    refuse(args.start.has_value(), "start", "csv, slurm and xid");
    return;
  }
  options.time_column = args.time.value_or("");
  options.node_column = args.node.value_or("");
  options.event_column = args.event.value_or("");
  options.cause_column = args.cause.value_or("");
  options.event_kinds = args.map;
  for (const auto& [word, kind] : args.map) {
    const std::vector<std::string> kinds = {"fail", "repair",   "leave",
                                            "join", "fail_job", "ignore"};
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      diagnostics.add(at_setting("map"), fmt::format("'{}' is no kind of event", kind),
                      config::suggest(kind, kinds, "kinds"));
    }
  }
  if (args.repair_after) options.repair_after = orrery::to_nanoseconds(*args.repair_after);
  if (args.start) {
    options.start = traces::parse_clock(*args.start);
    if (!options.start) {
      diagnostics.add(at_setting("start"), fmt::format("'{}' is no time", *args.start),
                      "as in 2024-05-01T12:34:56Z");
    }
  }
}

void check_format(const std::string& name, Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (const traces::TraceFormat& format : traces::trace_formats()) {
    if (format.name == name) return;
    known.emplace_back(format.name);
  }
  diagnostics.add({"import", 0, 0}, fmt::format("unknown format '{}'", name),
                  config::suggest(name, known, "formats"));
}

}  // namespace

void describe(config::Visitor& v, TraceImportSettings& settings) {
  v.required("format", settings.format,
             "bamboo, oobleck, parcae, aws, gcp, skypilot, infinitehbd, csv, slurm or xid",
             {.positional = true});
  v.required("file", settings.files, "one, or several that make one trace: one per GPU type",
             {.positional = true});
  v.optional("gpu_type", settings.gpu_types, "of each file, in their order");
  v.optional("gpus_per_node", settings.gpus_per_node, "default: 1");
  v.optional(
      "nodes", settings.nodes,
      "infinitehbd, csv, slurm, xid: how many nodes there are, those that never fail included; "
      "default: as many as fail");
  v.optional("order", settings.order,
             "which node leaves where a format only says how many are there: last_in_first_out "
             "(default) or random");
  v.optional("seed", settings.seed, "of --order random; default: 0");
  v.optional("days", settings.days, "repeat the trace until then; default: as long as it is");
  v.section("Logs (csv, slurm, xid)");
  v.optional("time", settings.time, "csv: column of the times, ISO 8601 or seconds");
  v.optional("node", settings.node, "csv: column of the nodes' names");
  v.optional("event", settings.event, "csv: column that says what happened");
  v.optional("cause", settings.cause, "csv: column of the causes; default: that of the events");
  v.optional("map", settings.map,
             "csv: WORD=KIND: what the log's word means: fail, repair, leave, join, fail_job "
             "(the job dies, no node is lost) or ignore; may be repeated");
  v.optional("repair_after", settings.repair_after,
             "nodes come back so long after they last failed, as in \"2 h\", unless the log says "
             "so sooner; default: only as the log says");
  v.optional(
      "start", settings.start,
      "ISO time that is 0 of the trace; what was before is left out; default: the first event");
  v.section("Result");
  v.optional("output", settings.output, "write to this file; default: standard output",
             {.letter = 'o'});
  v.between("gpus_per_node", settings.gpus_per_node, std::int64_t{1}, kMostGpusPerNode);
  if (settings.repair_after) {
    v.between("repair_after", *settings.repair_after, Seconds{0.001}, Seconds{kMostDays * 86'400});
  }
  if (settings.nodes) v.between("nodes", *settings.nodes, std::int64_t{1}, kMostNodes);
  v.not_negative("seed", settings.seed);
}

void describe(config::Visitor& v, TraceGenerateSettings& settings) {
  v.required("generator", settings.generator,
             "generator of the library (llama3, infinitehbd: failures; spot, bamboo_p3: spot "
             "nodes), or a YAML file",
             {.positional = true});
  v.optional("cluster", settings.cluster, "cluster of the library, or a YAML file",
             {.letter = 'c'});
  v.optional("gpus", settings.gpus, "instead of a cluster: this many GPUs in equal nodes");
  v.optional("gpus_per_node", settings.gpus_per_node, "default: 8");
  v.optional("gpu_type", settings.gpu_type, "of the equal nodes; default: not said");
  v.optional("days", settings.days, "length of the trace; default: 54");
  v.optional("seed", settings.seed, "default: 0");
  v.optional("conditioned", settings.conditioned,
             "exactly the expected number of failures of each cause, at uniform times");
  v.optional("set", settings.settings,
             "KEY.PATH=VALUE: replaces a value of the generator; may be repeated");
  v.optional("output", settings.output, "write to this file; default: standard output",
             {.letter = 'o'});
  if (settings.gpus) v.at_least("gpus", *settings.gpus, std::int64_t{1});
  if (settings.gpus_per_node) {
    v.between("gpus_per_node", *settings.gpus_per_node, std::int64_t{1}, kMostGpusPerNode);
  }
  v.not_negative("seed", settings.seed);
}

TextResult generate_trace(const TraceGenerateSettings& args, const Call&, Diagnostics diagnostics) {
  std::vector<std::string> changes = args.settings;
  if (args.conditioned) changes.emplace_back("failures.conditioned=true");
  const traces::TraceGenerator generator =
      traces::load_generator(args.generator, models::default_library_root(), changes,
                             {"generate", 0, 0}, at_setting("set"), diagnostics);
  if (args.conditioned && diagnostics.empty() && generator.failures->causes.empty()) {
    diagnostics.add(at_setting("conditioned"), "the generator has no failures");
  }
  const traces::GeneratorNodes nodes = generator_nodes(args, diagnostics);
  const std::vector<OutputFile> outputs = {{"output", file_of(args.output)}};
  check_outputs(outputs, {args.generator}, diagnostics);
  if (diagnostics.empty()) {
    for (const std::string& problem :
         traces::find_problems(generator, nodes, to_nanoseconds(args.days))) {
      diagnostics.add({args.generator, 0, 0}, problem);
    }
  }
  diagnostics.raise();
  probe_outputs(outputs);
  return delivered_to(
      args.output, traces::write_trace(traces::generate(generator, nodes, to_nanoseconds(args.days),
                                                        static_cast<std::uint64_t>(args.seed))));
}

TextResult import_traces(const TraceImportSettings& args, const Call&, Diagnostics diagnostics) {
  check_format(args.format, diagnostics);
  traces::ImportOptions options;
  options.gpus_per_node = static_cast<int>(args.gpus_per_node);
  options.seed = static_cast<std::uint64_t>(args.seed);
  options.order = args.order;
  options.nodes = args.nodes.value_or(0);
  const bool log = args.format == "csv" || args.format == "slurm" || args.format == "xid";
  if (args.nodes && args.format != "infinitehbd" && !log) {
    diagnostics.add(at_setting("nodes"), fmt::format("{} says how many there are", args.format));
  }
  read_log_settings(args, log, options, diagnostics);
  if (!args.gpu_types.empty() && args.gpu_types.size() != args.files.size()) {
    diagnostics.add(
        at_setting("gpu_type"),
        fmt::format("given {} times for {} files", args.gpu_types.size(), args.files.size()),
        "once for each file, in their order, or not at all");
  }
  for (const std::string& type : args.gpu_types) {
    if (const std::string bad = traces::bad_node_name(type); !bad.empty()) {
      diagnostics.add(at_setting("gpu_type"), fmt::format("'{}' is no name of a GPU type", type));
    }
  }
  const std::vector<OutputFile> outputs = {{"output", file_of(args.output)}};
  check_outputs(outputs, args.files, diagnostics);
  diagnostics.raise();
  std::vector<traces::Trace> read;
  for (std::size_t i = 0; i < args.files.size(); ++i) {
    if (!args.gpu_types.empty()) options.gpu_type = args.gpu_types[i];
    if (args.files.size() > 1) {
      options.prefix =
          options.gpu_type.empty() ? fmt::format("trace{}-node", i) : options.gpu_type + "-node";
    }
    read.push_back(traces::import_trace(args.format, args.files[i], options, diagnostics));
    if (diagnostics.empty() && read.back().horizon.count < 1'000'000'000) {
      diagnostics.add({args.files[i], 0, 0}, "the trace has no length");
    }
  }
  if (args.days && diagnostics.empty()) {
    double events = 0;
    for (const traces::Trace& trace : read)
      events += traces::repeated_events(trace, to_nanoseconds(*args.days));
    if (events > static_cast<double>(traces::kMostEvents)) {
      diagnostics.add(at_setting("days"),
                      fmt::format("repeats the trace to {:.3g} events, at most {} are written",
                                  events, traces::kMostEvents),
                      "fewer days");
    }
  }
  diagnostics.raise();
  probe_outputs(outputs);
  if (args.days) {
    // Each on its own: shorter ones start again earlier.
    for (traces::Trace& trace : read) trace = traces::repeat(trace, to_nanoseconds(*args.days));
  }
  return delivered_to(args.output,
                      traces::write_trace(read.size() == 1 ? read.front() : traces::combine(read)));
}

}  // namespace orrery::experiments
