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

void check_buckets(config::Visitor& v, const std::vector<Bucket>& buckets) {
  if (buckets.empty()) return v.problem("lengths", "no buckets");
  double sum = 0;
  std::int64_t before = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.longest <= before) return v.problem("lengths", "lengths do not ascend");
    before = bucket.longest;
    sum += bucket.share;
  }
  if (std::abs(sum - 1) > 1e-6) {
    v.problem("lengths", fmt::format("shares add up to {}, not to 1", sum));
  }
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
  if (v.reading() && v.good()) check_buckets(v, model.distribution.buckets);
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

std::vector<std::int64_t> draw_step(const LengthModel& model, std::int64_t tokens,
                                    std::int64_t context, Rng rng) {
  ORRERY_CHECK(
      tokens > 0 && tokens % model.multiple == 0 && context > 0 && context % model.multiple == 0,
      "{} tokens and context {} in multiples of {}", tokens, context, model.multiple);
  const std::vector<Bucket>& buckets = model.distribution.buckets;
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = tokens; left > 0; left -= lengths.back()) {
    double point = rng.uniform();
    std::size_t i = 0;
    while (i + 1 < buckets.size() && point >= buckets[i].share) point -= buckets[i++].share;
    const double low = lower_end(buckets, i);
    const double high = static_cast<double>(buckets[i].longest);
    const auto drawn = static_cast<std::int64_t>(
        std::ceil(std::min(high, low * std::pow(high / low, rng.uniform()))));
    const std::int64_t rounded = (drawn + model.multiple - 1) / model.multiple * model.multiple;
    lengths.push_back(std::min({rounded, context, left}));
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
