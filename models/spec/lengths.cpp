#include "models/spec/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/base/check.h"
#include "models/config/document.h"

namespace orrery::models {
namespace {

using Bucket = LengthDistribution::Bucket;

/// Shortest length of the first bucket, in tokens.
constexpr double kShortest = 32;

double lower_end(const std::vector<Bucket>& buckets, std::size_t i) {
  if (i > 0) return static_cast<double>(buckets[i - 1].longest);
  return std::min(kShortest, static_cast<double>(buckets.front().longest));
}

/// What is wrong with the list; "": nothing.
std::string find_problem(const std::vector<Bucket>& buckets) {
  if (buckets.empty()) return "no buckets";
  double sum = 0;
  std::int64_t before = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.longest <= before) return "lengths do not ascend";
    before = bucket.longest;
    sum += bucket.share;
  }
  return std::abs(sum - 1) > 1e-6 ? fmt::format("shares add up to {}, not to 1", sum) : "";
}

/// A bucket by its share, a length log-uniform inside it, rounded up.
std::int64_t draw(const LengthModel& model, Rng& rng) {
  const std::vector<Bucket>& buckets = model.distribution.buckets;
  double point = rng.uniform();
  std::size_t i = 0;
  while (i + 1 < buckets.size() && point >= buckets[i].share) point -= buckets[i++].share;
  const double low = lower_end(buckets, i);
  const double high = static_cast<double>(buckets[i].longest);
  const auto drawn = static_cast<std::int64_t>(
      std::ceil(std::min(high, low * std::pow(high / low, rng.uniform()))));
  return (drawn + model.multiple - 1) / model.multiple * model.multiple;
}

}  // namespace

void describe(config::Visitor& v, LengthModel& model) {
  v.schema("orrery/lengths", 1);
  v.title("Lengths");
  v.doc("A synthetic distribution of sequence lengths.");
  v.required("name", model.name, "");
  v.required("source", model.source, "what is published, what is assumed");
  v.required("lengths", model.distribution.buckets,
             "shares of sequences by length, ascending; they add up to 1");
  v.optional("multiple", model.multiple, "tokens; lengths are rounded up to a multiple of it");
  v.at_least("multiple", model.multiple, std::int64_t{1});
  if (!v.reading() || !v.good()) return;
  const std::string problem = find_problem(model.distribution.buckets);
  if (!problem.empty()) v.problem("lengths", problem);
}

LengthModel load_lengths(const std::string& name, const std::string& root,
                         config::Position asked_at, config::Diagnostics& diagnostics) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_regular_file(name, error)) return config::load_file<LengthModel>(name, diagnostics);
  const fs::path folder = fs::path(root) / "lengths";
  const fs::path path = folder / (name + ".yaml");
  if (name.find('/') == std::string::npos && fs::is_regular_file(path, error)) {
    return config::load_file<LengthModel>(path.string(), diagnostics);
  }
  std::vector<std::string> known;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    known.push_back(entry.path().stem().string());
  }
  std::sort(known.begin(), known.end());
  diagnostics.add(asked_at, fmt::format("no lengths '{}'", name),
                  config::suggest(name, known, "lengths"));
  return {};
}

LengthModel read_lengths(const config::Value& value, const std::string& root,
                         config::Diagnostics& diagnostics) {
  namespace fs = std::filesystem;
  if (value.is_scalar()) {
    std::error_code error;
    const std::string neighbor = (fs::path(value.at.file).parent_path() / value.text).string();
    return load_lengths(fs::is_regular_file(neighbor, error) ? neighbor : value.text, root,
                        value.at, diagnostics);
  }
  LengthModel model;
  model.name = "job";
  model.source = "the job's own buckets";
  if (!value.is_list()) {
    diagnostics.add(
        value.at,
        "expected the name of a distribution or a list of buckets, got " + config::kind_text(value),
        "as in commoncrawl_like or [{longest: 4096, share: 1}]");
    return model;
  }
  if (!config::describe_value(value, model.distribution.buckets, diagnostics)) return model;
  const std::string problem = find_problem(model.distribution.buckets);
  if (!problem.empty()) diagnostics.add(value.at, problem);
  return model;
}

std::vector<std::int64_t> draw_sequences(const LengthModel& model, std::int64_t sequences,
                                         std::int64_t context, Rng rng) {
  ORRERY_CHECK(sequences > 0 && context > 0 && context % model.multiple == 0,
               "{} sequences, context {} in multiples of {}", sequences, context, model.multiple);
  std::vector<std::int64_t> lengths;
  while (std::ssize(lengths) < sequences) lengths.push_back(std::min(draw(model, rng), context));
  return lengths;
}

std::vector<std::int64_t> draw_step(const LengthModel& model, std::int64_t tokens,
                                    std::int64_t context, Rng rng) {
  ORRERY_CHECK(
      tokens > 0 && tokens % model.multiple == 0 && context > 0 && context % model.multiple == 0,
      "{} tokens and context {} in multiples of {}", tokens, context, model.multiple);
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = tokens; left > 0; left -= lengths.back()) {
    lengths.push_back(std::min({draw(model, rng), context, left}));
  }
  return lengths;
}

double share_up_to(const LengthDistribution& distribution, std::int64_t length) {
  const std::vector<Bucket>& buckets = distribution.buckets;
  double share = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const double low = lower_end(buckets, i);
    const auto high = static_cast<double>(buckets[i].longest);
    const auto at = static_cast<double>(length);
    if (at >= high) {
      share += buckets[i].share;
    } else if (at > low) {
      share += buckets[i].share * std::log(at / low) / std::log(high / low);
    }
  }
  return share;
}

}  // namespace orrery::models
