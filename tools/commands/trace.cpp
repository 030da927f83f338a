/// orrery trace: draws traces of failures and spot nodes, reads those of others, and says what is
/// in them (trace_stats.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/config/document.h"
#include "models/spec/library.h"
#include "tools/cli/output.h"
#include "tools/commands/commands.h"
#include "tools/commands/days.h"
#include "tools/commands/exports.h"
#include "tools/commands/inputs.h"
#include "traces/bind.h"
#include "traces/csv.h"
#include "traces/generate.h"
#include "traces/import.h"
#include "traces/names.h"

namespace orrery::tools {
namespace {

using config::Diagnostics;

constexpr std::int64_t kMostGpus = 10'000'000;
constexpr std::int64_t kMostGpusPerNode = 1024;  ///< As of `# nodes:` in a trace.

/// Those of --cluster, or equal ones.
traces::GeneratorNodes generator_nodes(const TraceGenerateArgs& args, Diagnostics& diagnostics) {
  if (args.cluster) {
    for (const auto& [flag, text] : {std::pair{"--gpus", &args.gpus},
                                     {"--gpus-per-node", &args.gpus_per_node},
                                     {"--gpu-type", &args.gpu_type}}) {
      if (*text) diagnostics.add(at_flag(flag), "says what --cluster says");
    }
    const models::Library library = open_library(diagnostics);
    return traces::nodes_of_cluster(
        models::load_cluster(*args.cluster, library, at_flag("--cluster"), diagnostics));
  }
  if (!args.gpus) {
    diagnostics.add(at_flag("--gpus"), "is missing", "--cluster NAME, or --gpus N");
    return {};
  }
  const std::int64_t gpus = whole_number(args.gpus, "--gpus", 1, 1, diagnostics);
  const std::int64_t per_node =
      whole_number(args.gpus_per_node, "--gpus-per-node", 1, 8, diagnostics);
  if (per_node > kMostGpusPerNode) {
    diagnostics.add(at_flag("--gpus-per-node"), fmt::format("at most {}", kMostGpusPerNode));
    return {};
  }
  const std::string type = args.gpu_type.value_or("");
  if (const std::string bad = type.empty() ? "" : traces::bad_node_name(type); !bad.empty()) {
    diagnostics.add(at_flag("--gpu-type"), fmt::format("'{}' is no name of a GPU type", type));
  }
  if (gpus > kMostGpus || per_node > gpus || gpus % per_node != 0) {
    diagnostics.add(at_flag("--gpus"), fmt::format("{} GPUs in nodes of {}", gpus, per_node),
                    fmt::format("a multiple of --gpus-per-node, at most {}", kMostGpus));
    return {};
  }
  return traces::equal_nodes(static_cast<int>(gpus / per_node), static_cast<int>(per_node), type);
}

void write_trace_to(const Text& output, const traces::Trace& trace) {
  const std::string text = traces::write_trace(trace);
  if (const Text file = file_of(output)) {
    write_file(*file, text);
  } else {
    print(text);
  }
}

const traces::TraceFormat* check_format(const std::string& name, Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (const traces::TraceFormat& format : traces::trace_formats()) {
    if (format.name == name) return &format;
    known.emplace_back(format.name);
  }
  diagnostics.add({"import", 0, 0}, fmt::format("unknown format '{}'", name),
                  config::suggest(name, known, "formats"));
  return nullptr;
}

}  // namespace

int execute(const TraceGenerateArgs& args) {
  Diagnostics diagnostics;
  std::vector<std::string> changes = args.settings;
  if (args.conditioned) changes.emplace_back("failures.conditioned=true");
  const auto horizon = days_flag(args.days.value_or("54"), diagnostics);
  const std::int64_t seed = whole_number(args.seed, "--seed", 0, 0, diagnostics);
  const traces::TraceGenerator generator =
      traces::load_generator(args.generator, models::default_library_root(), changes,
                             {"generate", 0, 0}, at_flag("--set"), diagnostics);
  if (args.conditioned && diagnostics.empty() && generator.failures->causes.empty()) {
    diagnostics.add(at_flag("--conditioned"), "the generator has no failures");
  }
  const traces::GeneratorNodes nodes = generator_nodes(args, diagnostics);
  const std::vector<OutputFile> outputs = {{"--output", file_of(args.output)}};
  check_outputs(outputs, {args.generator}, diagnostics);
  if (diagnostics.empty()) {
    for (const std::string& problem : traces::find_problems(generator, nodes)) {
      diagnostics.add({args.generator, 0, 0}, problem);
    }
  }
  diagnostics.raise();
  probe_outputs(outputs);
  write_trace_to(args.output,
                 traces::generate(generator, nodes, *horizon, static_cast<std::uint64_t>(seed)));
  return 0;
}

int execute(const TraceImportArgs& args) {
  Diagnostics diagnostics;
  check_format(args.format, diagnostics);
  traces::ImportOptions options;
  const std::int64_t per_node =
      whole_number(args.gpus_per_node, "--gpus-per-node", 1, 1, diagnostics);
  if (per_node > kMostGpusPerNode) {
    diagnostics.add(at_flag("--gpus-per-node"), fmt::format("at most {}", kMostGpusPerNode));
  } else {
    options.gpus_per_node = static_cast<int>(per_node);
  }
  options.seed = static_cast<std::uint64_t>(whole_number(args.seed, "--seed", 0, 0, diagnostics));
  if (args.order) {
    config::describe_value(config::Value::scalar(*args.order, at_flag("--order")), options.order,
                           diagnostics);
  }
  const auto horizon = days_flag(args.days, diagnostics);
  if (!args.gpu_types.empty() && args.gpu_types.size() != args.files.size()) {
    diagnostics.add(
        at_flag("--gpu-type"),
        fmt::format("given {} times for {} files", args.gpu_types.size(), args.files.size()),
        "once for each file, in their order, or not at all");
  }
  for (const std::string& type : args.gpu_types) {
    if (const std::string bad = traces::bad_node_name(type); !bad.empty()) {
      diagnostics.add(at_flag("--gpu-type"), fmt::format("'{}' is no name of a GPU type", type));
    }
  }
  const std::vector<OutputFile> outputs = {{"--output", file_of(args.output)}};
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
  if (horizon && diagnostics.empty()) {
    double events = 0;
    for (const traces::Trace& trace : read) events += traces::repeated_events(trace, *horizon);
    if (events > static_cast<double>(traces::kMostEvents)) {
      diagnostics.add(at_flag("--days"),
                      fmt::format("repeats the trace to {:.3g} events, at most {} are written",
                                  events, traces::kMostEvents),
                      "fewer days");
    }
  }
  diagnostics.raise();
  probe_outputs(outputs);
  if (horizon) {
    // Each on its own: shorter ones start again earlier.
    for (traces::Trace& trace : read) trace = traces::repeat(trace, *horizon);
  }
  write_trace_to(args.output, read.size() == 1 ? read.front() : traces::combine(read));
  return 0;
}

}  // namespace orrery::tools
