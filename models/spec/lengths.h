/// Synthetic data with sequences of mixed lengths: a named distribution of lengths, and a sampler
/// that draws the sequences of one optimizer step from it. The distributions of the library
/// (models/library/lengths/*.yaml) imitate corpora; each file says which of its shares are
/// published and which are assumed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "models/config/diagnostics.h"
#include "models/config/value.h"
#include "models/spec/job.h"

namespace orrery::models {

/// YAML (`schema: orrery/lengths/1`).
struct LengthModel {
  std::string name;
  std::string source;  ///< What is published, what is assumed.
  LengthDistribution distribution;
  /// Lengths are rounded up to a multiple of this: padding, so that sequence parallelism divides.
  std::int64_t multiple = 256;
};

void describe(config::Visitor& v, LengthModel& model);

/// `name` is a distribution of the library below `root` or a path to a YAML file.
LengthModel load_lengths(const std::string& name, const std::string& root,
                         config::Position asked_at, config::Diagnostics& diagnostics);

/// What a job says under `lengths`: the name of a distribution of the library, a YAML file (next to
/// the job's file, or seen from the current folder), or the buckets themselves, {longest, share}
/// each; these are called "job" and rounded up as LengthModel says. `root` as above.
LengthModel read_lengths(const config::Value& value, const std::string& root,
                         config::Diagnostics& diagnostics);

/// Lengths of `sequences` sequences, drawn and cut as below; what they add up to varies.
std::vector<std::int64_t> draw_sequences(const LengthModel& model, std::int64_t sequences,
                                         std::int64_t context, Rng rng);

/// Lengths of the sequences of one step, in the order in which they are drawn, in tokens. A bucket
/// by its share, a length log-uniform inside the bucket, rounded up to model.multiple, cut at
/// `context`. Draws until the lengths add up to `tokens` exactly: the last sequence is cut there.
/// `tokens` and `context` are positive multiples of model.multiple (aborts otherwise).
std::vector<std::int64_t> draw_step(const LengthModel& model, std::int64_t tokens,
                                    std::int64_t context, Rng rng);

/// Share of the distribution's sequences that are at most `length` long (before cutting); inside a
/// bucket as draw_step() draws, without rounding.
double share_up_to(const LengthDistribution& distribution, std::int64_t length);

}  // namespace orrery::models
