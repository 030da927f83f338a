#include "tools/commands/sweep_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "tools/commands/inputs.h"
#include "tools/commands/judge.h"

namespace orrery::tools {
namespace {

/// "1/4" of --shard.
void read_shard(const Text& text, experiments::RunnerOptions& options,
                config::Diagnostics& diagnostics) {
  if (!text) return;
  const char* end = text->data() + text->size();
  const auto first = std::from_chars(text->data(), end, options.shard_index);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, options.shard_count);
    if (second.ec == std::errc() && second.ptr == end && options.shard_index >= 1 &&
        options.shard_index <= options.shard_count) {
      return;
    }
  }
  diagnostics.add(at_flag("--shard"), fmt::format("'{}' is not I/N with 1 <= I <= N", *text),
                  "for example --shard 1/4");
}

}  // namespace

template <class Args>
experiments::RunnerOptions runner_options(const Args& args, config::Diagnostics& diagnostics) {
  experiments::RunnerOptions options;
  options.results_root = args.results;
  options.workers = static_cast<int>(std::min<std::int64_t>(
      whole_number(args.workers, "--workers", 1, 0, diagnostics), std::numeric_limits<int>::max()));
  read_shard(args.shard, options, diagnostics);
  if (args.results.empty()) diagnostics.add(at_flag("--results"), "no folder is named");
  options.dry_run = args.dry_run;
  options.figure = !args.no_figure;
  options.quiet = args.quiet;
  return options;
}

template experiments::RunnerOptions runner_options(const RunArgs&, config::Diagnostics&);
template experiments::RunnerOptions runner_options(const ReplayArgs&, config::Diagnostics&);
template experiments::RunnerOptions runner_options(const MixedLengthArgs&, config::Diagnostics&);

SweepProgress::SweepProgress(const experiments::RunnerOptions& options)
    : line_(options.quiet || options.dry_run) {}

std::function<void(const experiments::Progress&)> SweepProgress::listener() {
  return [this](const experiments::Progress& progress) {
    line_.show({progress.total, progress.done, progress.present, progress.failed,
                progress.under_way, progress.elapsed_seconds, progress.remaining_seconds,
                progress.message});
  };
}

}  // namespace orrery::tools
