#include "models/config/diagnostics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace orrery::config {
namespace {

constexpr std::size_t kMostLines = 100;
constexpr std::size_t kMostNamed = 300;  ///< In a hint.

std::string all_lines(const std::vector<Problem>& problems) {
  std::string text;
  for (std::size_t i = 0; i < problems.size() && i < kMostLines; ++i) {
    if (i > 0) text += '\n';
    text += to_string(problems[i]);
  }
  if (problems.size() > kMostLines) {
    text += fmt::format("\n... and {} more problems", problems.size() - kMostLines);
  }
  return text;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower(std::string_view word) {
  std::string text(word);
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return lower(c); });
  return text;
}

/// Insertions, deletions, replacements and swaps of neighbors (optimal string alignment).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    // The rows move up; the oldest is written over.
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

}  // namespace

std::string to_string(const Position& at) {
  if (at.line == 0) return at.file;
  if (at.column == 0) return fmt::format("{}:{}", at.file, at.line);
  return fmt::format("{}:{}:{}", at.file, at.line, at.column);
}

std::string to_string(const Problem& problem) {
  std::string text = to_string(problem.at);
  if (!text.empty()) text += ": ";
  text += problem.what;
  if (!problem.hint.empty()) text += " (" + problem.hint + ")";
  return text;
}

ConfigError::ConfigError(std::vector<Problem> found)
    : std::runtime_error(all_lines(found)), problems(std::move(found)) {}

void Diagnostics::add(Position at, std::string what, std::string hint) {
  problems_.push_back({std::move(at), std::move(what), std::move(hint)});
}

void Diagnostics::raise() const {
  if (problems_.empty()) return;
  std::map<std::string, std::size_t> rank;
  for (const Problem& p : problems_) rank.emplace(p.at.file, rank.size());
  std::vector<Problem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Problem& a, const Problem& b) {
    return std::tuple(rank.at(a.at.file), a.at.line, a.at.column) <
           std::tuple(rank.at(b.at.file), b.at.line, b.at.column);
  });
  // An alias of YAML repeats a part of the file, whose problems are found once for each alias.
  std::set<std::string> said;
  std::erase_if(sorted, [&](const Problem& problem) {
    return problem.at.line > 0 && !said.insert(to_string(problem)).second;
  });
  throw ConfigError(std::move(sorted));
}

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 100;  // beyond that, nobody mistyped a name
  constexpr std::size_t kPrefix = 3;
  std::string best;
  std::size_t best_distance = kLongest;
  const std::string wanted = lower(word);
  if (wanted.empty() || wanted.size() > kLongest) return best;
  for (const std::string& candidate : candidates) {
    const std::string other = lower(candidate);
    if (other.size() > kLongest) continue;
    const std::size_t shorter = std::min(wanted.size(), other.size());
    const std::size_t longer = std::max(wanted.size(), other.size());
    const std::size_t limit = std::max<std::size_t>(2, wanted.size() / 3);
    const bool prefix = shorter >= kPrefix && wanted.compare(0, shorter, other, 0, shorter) == 0;
    if (longer - shorter > limit && !prefix) continue;  // So many insertions.
    const std::size_t distance = edit_distance(wanted, other);
    const bool near = distance <= limit && distance < shorter;
    if ((near || prefix || distance == 0) && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggest(std::string_view word, const std::vector<std::string>& candidates,
                    std::string_view label) {
  const std::string best = closest(word, candidates);
  if (!best.empty()) return fmt::format("did you mean '{}'?", best);
  if (candidates.empty()) return "";
  const auto named = std::min(candidates.size(), kMostNamed);
  const auto rest = candidates.size() - named;
  return fmt::format(
      "{}: {}{}", label,
      fmt::join(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(named), ", "),
      rest == 0 ? "" : fmt::format(" and {} more", rest));
}

}  // namespace orrery::config
