#include "tools/commands/sweep_settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>

namespace orrery::tools {

void describe(config::Visitor& v, Shard& shard) {
  v.required("index", shard.index, "from 1");
  v.required("count", shard.count, "of all shards");
}

bool from_scalar(const std::string& text, Shard& out, std::string& error) {
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.index);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, out.count);
    if (second.ec == std::errc() && second.ptr == end && out.index >= 1 && out.index <= out.count) {
      return true;
    }
  }
  error = fmt::format("'{}' is not I/N with 1 <= I <= N, for example 1/4", text);
  return false;
}

void describe(config::Visitor& v, SweepSettings& settings) {
  v.optional("results", settings.results, "where results go; default: results");
  v.optional("workers", settings.workers, "processes at once; default: one for each core");
  v.optional("shard", settings.shard, "I/N: only every N-th run, from the I-th");
  v.optional("limit", settings.limit,
             "do at most this many runs, then stop; the next call goes on");
  v.optional("dry_run", settings.dry_run, "print the runs and an estimate of the time");
  v.optional("no_figure", settings.no_figure, "do not draw the figure");
  v.optional("quiet", settings.quiet, "no progress", {.letter = 'q'});
  describe(v, settings.cache);
  if (settings.workers) v.at_least("workers", *settings.workers, 1);
  if (settings.limit) v.at_least("limit", *settings.limit, 1);
  if (v.reading() && settings.results.empty()) v.problem("results", "no folder is named");
}

experiments::RunnerOptions SweepSettings::options() const {
  experiments::RunnerOptions options;
  options.results_root = results;
  options.workers = workers.value_or(0);
  if (shard) {
    options.shard_index = shard->index;
    options.shard_count = shard->count;
  }
  options.limit = limit.value_or(0);
  options.dry_run = dry_run;
  options.figure = !no_figure;
  return options;
}

}  // namespace orrery::tools
