#include "experiments/study/exports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "experiments/study/files.h"
#include "models/base/check.h"
#include "models/ir/chrome_trace.h"
#include "models/ir/perfetto.h"
#include "models/ir/wire.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_chrome(const std::string& path) { return ends_with(path, ".json"); }

ir::TimelineNames names_of(const models::Cluster& cluster) {
  ir::TimelineNames names;
  names.device = [&cluster](DeviceId id) {
    return fmt::format("GPU {} {}", id.value, cluster.gpu(id).name);
  };
  names.node_of = [&cluster](DeviceId id) { return cluster.device(id).node; };
  names.node = [&cluster](NodeId id) { return cluster.node(id).name; };
  return names;
}

std::string timeline(const std::string& path, const models::Cluster& cluster,
                     const ir::Program& program, const ir::RunLog& log) {
  const std::string mismatch = ir::find_mismatch(program, log);
  ORRERY_CHECK(mismatch.empty(), "log of another program: {}", mismatch);
  const ir::TimelineNames names = names_of(cluster);
  std::ostringstream out;
  if (is_chrome(path)) {
    ir::write_chrome(program, log, names, out);
  } else {
    ir::write_perfetto(program, log, names, out);
  }
  return std::move(out).str();
}

/// The same file, be it there or not.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return fs::is_regular_file(a, error);  // /dev/null may be both
  return !fs::exists(a, error) && fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error);
}

}  // namespace

void describe(config::Visitor& v, TextResult& result) {
  v.title("Text");
  v.required("text", result.text, "all of it");
  v.optional("file", result.file, "where it was written");
}

TextResult delivered_to(const Text& output, std::string text) {
  TextResult result{std::move(text), file_of(output)};
  if (result.file) write_file(*result.file, result.text);
  return result;
}

std::vector<std::string> input_files(const JobSettings& job) {
  std::vector<std::string> files;
  for (const Text& file : {job.cluster, job.model, job.job, job.profile}) {
    if (file) files.push_back(*file);
  }
  return files;
}

void check_outputs(const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs,
                   config::Diagnostics& diagnostics) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (!output->path) continue;
    const std::string& path = *output->path;
    if (path.empty()) {
      diagnostics.add(at_setting(output->key), "no file is named");
      continue;
    }
    for (auto other = outputs.begin(); other != output; ++other) {
      if (!other->path || !same_file(path, *other->path)) continue;
      diagnostics.add(at_setting(output->key),
                      fmt::format("'{}' is the file of {} too", path, at_setting(other->key).file),
                      "name another file");
    }
    for (const std::string& input : inputs) {
      if (!same_file(path, input)) continue;
      diagnostics.add(at_setting(output->key), fmt::format("'{}' would be overwritten", path),
                      "it is an input of this command: name another file");
    }
  }
}

void probe_outputs(const std::vector<OutputFile>& outputs) {
  for (const OutputFile& output : outputs) {
    if (!output.path) continue;
    const fs::path path = *output.path;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    std::error_code error;
    int code = 0;
    if (fs::is_directory(path, error)) {
      code = EISDIR;
    } else if (access(folder.c_str(), fs::exists(path, error) ? X_OK : W_OK | X_OK) != 0) {
      code = errno;
    }
    if (code != 0) {
      throw std::runtime_error(
          fmt::format("cannot write {}: {}", path.string(), std::strerror(code)));
    }
  }
}

void check_out_folder(const char* key, const std::string& path, config::Diagnostics& diagnostics) {
  if (path.empty()) {
    diagnostics.add(at_setting(key), "no folder is named");
    return;
  }
  std::error_code error;
  fs::path there = fs::absolute(path, error);
  // Nothing can be said about /dev/null/x: its status is an error.
  while (fs::symlink_status(there, error).type() == fs::file_type::not_found &&
         there.has_relative_path()) {
    there = there.parent_path();
  }
  const bool folder = fs::is_directory(there, error);
  if (folder && access(there.c_str(), W_OK | X_OK) == 0) return;
  diagnostics.add(at_setting(key), fmt::format("cannot write into '{}': {}", path,
                                               folder ? std::strerror(errno) : "not a folder"));
}

void check_exports(const Exports& exports, CostModel cost, config::Diagnostics& diagnostics) {
  if (!exports.timeline.empty() && !is_chrome(exports.timeline) &&
      !ends_with(exports.timeline, ".perfetto-trace")) {
    diagnostics.add(at_setting("timeline"),
                    fmt::format("the ending of '{}' names no format", exports.timeline),
                    "FILE.perfetto-trace, or FILE.json for Chrome's format");
  }
  if (cost == CostModel::simulator) return;
  const std::pair<const char*, const std::string&> files[] = {
      {"timeline", exports.timeline}, {"log", exports.log}, {"program", exports.program}};
  for (const auto& [key, path] : files) {
    if (!path.empty()) {
      diagnostics.add(at_setting(key), "a closed form runs no program", "use --cost simulator");
    }
  }
}

void write_exports(const Exports& exports, const models::Cluster& cluster,
                   const ir::Program& program, const ir::RunLog& log) {
  if (!exports.timeline.empty()) {
    write_file(exports.timeline, timeline(exports.timeline, cluster, program, log));
  }
  if (!exports.log.empty()) write_file(exports.log, ir::serialize(log));
  if (!exports.program.empty()) write_file(exports.program, ir::serialize(program));
}

}  // namespace orrery::experiments
