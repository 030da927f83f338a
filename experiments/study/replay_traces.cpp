#include "experiments/study/replay_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "experiments/study/checks.h"
#include "experiments/study/files.h"
#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/base/rng.h"
#include "models/config/document.h"
#include "models/spec/library.h"
#include "traces/bind.h"
#include "traces/csv.h"
#include "traces/generate/generate.h"
#include "traces/import/import.h"
#include "traces/rate.h"
#include "traces/repeat.h"
#include "traces/window.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSecond = 1'000'000'000;  ///< Shorter traces are not repeated.

/// Another file of the same format whose nodes are added to those of the first.
struct AlsoFile {
  config::Located<std::string> file;
  std::string gpu_type;
};

/// Settings of a foreign format (traces/import/import.h).
struct FormatSettings {
  traces::ImportOptions options;
  std::vector<AlsoFile> also;
};

void describe(config::Visitor& v, AlsoFile& also) {
  v.title("Another file");
  v.required("file", also.file, "next to the study, or $ORRERY_DATA/...");
  v.required("gpu_type", also.gpu_type, "of all its nodes");
}

void describe(config::Visitor& v, FormatSettings& settings) {
  traces::ImportOptions& options = settings.options;
  auto seed = static_cast<std::int64_t>(options.seed);
  v.title("Settings of a foreign trace");
  v.optional("gpu_type", options.gpu_type, "of all its nodes; absent: not said");
  v.optional("gpus_per_node", options.gpus_per_node, "");
  v.optional("prefix", options.prefix, "of the nodes' names");
  v.optional("order", options.order, "which node leaves when the format says only how many");
  v.optional("seed", seed, "of a random order");
  v.optional("also", settings.also,
             "more files of the format, one for each GPU type, all from time 0 on; the trace ends "
             "with the longest");
  v.at_least("gpus_per_node", options.gpus_per_node, 1);
  v.not_negative("seed", seed);
  options.seed = static_cast<std::uint64_t>(seed);
}

std::optional<traces::Trace> read_file_trace(const ReplayTrace& trace, const std::string& path,
                                             config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  traces::Trace read;
  if (trace.format) {
    std::vector<std::string> known;
    for (const traces::TraceFormat& format : traces::trace_formats()) known.push_back(format.name);
    if (std::find(known.begin(), known.end(), *trace.format) == known.end()) {
      diagnostics.add(trace.file->at, fmt::format("unknown trace format '{}'", *trace.format),
                      config::suggest(*trace.format, known, "formats"));
      return std::nullopt;
    }
    FormatSettings settings;
    if (!trace.settings.is_null()) {
      config::describe_value(trace.settings, settings, diagnostics);
    }
    if (diagnostics.problems().size() != before) return std::nullopt;
    read = traces::import_trace(*trace.format, path, settings.options, diagnostics);
  } else {
    if (!trace.settings.is_null()) {
      diagnostics.add(trace.settings.at, "a trace file takes no settings",
                      "they are for generators and for files of other formats");
    }
    read = traces::read_trace(path, diagnostics);
  }
  if (diagnostics.problems().size() != before) return std::nullopt;
  return read;
}

/// Adds the files of `also`, and their content to `content`. Names one below $ORRERY_DATA that is
/// not there in `absent`.
std::optional<traces::Trace> read_also(traces::Trace first, const ReplayTrace& trace,
                                       const std::string& folder, std::string& content,
                                       std::string& absent, config::Diagnostics& diagnostics) {
  FormatSettings settings;
  if (trace.format && !trace.settings.is_null()) {
    config::describe_value(trace.settings, settings, diagnostics);
  }
  if (settings.also.empty()) return first;
  std::vector<traces::Trace> all = {std::move(first)};
  const std::size_t before = diagnostics.problems().size();
  for (const AlsoFile& also : settings.also) {
    const std::string path = data_path(also.file.value, folder);
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
      if (is_below_data(also.file.value)) {
        absent = path;
        return std::nullopt;
      }
      diagnostics.add(also.file.at, fmt::format("no such trace file '{}'", path));
      continue;
    }
    content += read_text_file(path);
    traces::ImportOptions options = settings.options;
    options.gpu_type = also.gpu_type;
    all.push_back(traces::import_trace(*trace.format, path, options, diagnostics));
  }
  if (diagnostics.problems().size() != before) return std::nullopt;
  return traces::combine(all);
}

/// `a: {b: 1}` as "a.b=1".
void flatten(const config::Value& value, const std::string& path,
             std::vector<std::string>& changes) {
  for (const config::Value::Entry& entry : value.entries) {
    const std::string below = path.empty() ? entry.key : path + "." + entry.key;
    if (entry.value.is_map()) {
      flatten(entry.value, below, changes);
    } else {
      changes.push_back(
          below + "=" +
          (entry.value.is_scalar() ? entry.value.text : config::to_flow(entry.value)));
    }
  }
}

}  // namespace

struct TraceSource::Generator {
  traces::TraceGenerator generator;
  traces::GeneratorNodes nodes;
};

TraceSource::TraceSource(const ReplayCase& one, const std::string& folder,
                         const models::Cluster& cluster, config::Diagnostics& diagnostics) {
  const ReplayTrace& spec = one.trace;
  if (one.horizon) horizon_ = to_nanoseconds(*one.horizon);
  if (spec.generator) {
    set_generator(spec, folder, cluster, diagnostics);
  } else if (spec.file) {  // Neither is a problem of the study, reported where it was read.
    set_file(spec, folder, cluster, diagnostics);
  }
}

void TraceSource::set_file(const ReplayTrace& spec, const std::string& folder,
                           const models::Cluster& cluster, config::Diagnostics& diagnostics) {
  const std::string path = data_path(spec.file->value, folder);
  name_ = fs::path(path).filename().string();
  std::error_code error;
  if (fs::is_directory(path, error)) {
    diagnostics.add(spec.file->at, fmt::format("'{}' is a folder, not a trace file", path));
    return;
  }
  if (!fs::is_regular_file(path, error)) {
    if (is_below_data(spec.file->value)) {
      absent_ = path;
    } else {
      diagnostics.add(spec.file->at, fmt::format("no such trace file '{}'", path));
    }
    return;
  }
  std::string content = read_text_file(path);
  std::optional<traces::Trace> read = read_file_trace(spec, path, diagnostics);
  if (read) read = read_also(std::move(*read), spec, folder, content, absent_, diagnostics);
  hash_ = content_hash(content);
  if (!read) return;
  const std::size_t before = diagnostics.problems().size();
  windows_ = spec.start == TraceStart::seed;
  if (windows_ && horizon_.count == 0) {
    diagnostics.add(spec.file->at, "to begin anywhere in a file needs a horizon",
                    "as in `horizon: 6 h` beside `trace`");
    return;
  }
  // A window may begin anywhere in a file that starts again.
  const Nanoseconds needed = windows_ ? read->horizon + horizon_ : horizon_;
  if (spec.repeat && needed.count > read->horizon.count && read->horizon.count >= kSecond) {
    const double events = traces::repeated_events(*read, needed);
    if (events > static_cast<double>(traces::kMostEvents)) {
      diagnostics.add(spec.file->at,
                      fmt::format("repeated until the horizon the trace has {:.3g} events, at most "
                                  "{} are replayed",
                                  events, traces::kMostEvents),
                      "a shorter horizon");
      return;
    }
    read = traces::repeat(*read, needed);
  }
  if (horizon_.count == 0 && read->horizon.count <= 0) {
    diagnostics.add(spec.file->at, "the trace has no horizon", "a line `# horizon: 24 h` in it");
  }
  if (horizon_.count > read->horizon.count) {
    diagnostics.add(
        spec.file->at,
        fmt::format("the trace ends after {:.4g} h, before the horizon of {:.4g} h",
                    to_seconds(read->horizon).value / 3600, to_seconds(horizon_).value / 3600),
        "--repeat, in a study `repeat: true`, plays it again");
  }
  traces::Trace bound = traces::bind(*read, cluster, spec.file->at, diagnostics, &mapping_);
  if (diagnostics.problems().size() == before) file_ = std::move(bound);
}

void TraceSource::set_generator(const ReplayTrace& spec, const std::string& folder,
                                const models::Cluster& cluster, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  const std::string& asked = spec.generator->value;
  const std::string beside = (fs::path(folder) / asked).string();
  std::error_code error;
  const bool is_file = fs::is_regular_file(beside, error);
  name_ = is_file ? fs::path(beside).stem().string() : asked;
  std::vector<std::string> changes;
  flatten(spec.settings, "", changes);
  const config::Position at = spec.settings.is_null() ? spec.generator->at : spec.settings.at;
  Generator made{traces::load_generator(is_file ? beside : asked, models::default_library_root(),
                                        changes, spec.generator->at, at, diagnostics),
                 traces::nodes_of_cluster(cluster)};
  if (diagnostics.problems().size() != before) return;
  for (const std::string& problem : traces::find_problems(made.generator, made.nodes, horizon_)) {
    diagnostics.add(spec.generator->at, problem);
  }
  if (horizon_.count <= 0) {
    diagnostics.add(spec.generator->at, "a generated trace needs a horizon",
                    "as in `horizon: 54 day` beside `trace`");
  }
  if (diagnostics.problems().size() != before) return;
  hash_ = content_hash(config::dump(made.generator));
  generator_ = std::make_shared<const Generator>(std::move(made));
}

traces::Trace TraceSource::trace(std::uint64_t seed) const {
  ORRERY_CHECK(file_ || generator_, "a trace that was not loaded");
  if (file_ && windows_) {
    const std::int64_t room = file_->horizon.count - horizon_.count;
    return traces::window(*file_, Instant{Rng(seed).integer(0, room)}, horizon_);
  }
  if (file_) return *file_;
  return traces::generate(generator_->generator, generator_->nodes, horizon_, seed);
}

ExpectedInterruptions TraceSource::interruptions(double in_use) const {
  if (!file_ && !generator_) return {};
  if (generator_) {
    return {
        traces::expected_interruptions_per_second(generator_->generator, generator_->nodes, in_use),
        "the generator's rate"};
  }
  return {0, "as many as were seen so far"};
}

}  // namespace orrery::experiments
