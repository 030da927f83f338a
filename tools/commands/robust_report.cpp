#include "tools/commands/robust_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/intervals.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::Interval;
using experiments::RobustAlternative;
using experiments::RobustCandidate;
using experiments::RobustResult;

constexpr std::size_t kCandidatesShown = 12;
constexpr double kDay = 86'400;

/// "12.3 % ±0.4".
std::string share_cell(const Interval& share) { return interval_cell(share, 100, 2); }

std::string interval_name(double factor) {
  return factor == 1 ? "Young's" : fmt::format("{} x Young's", factor);
}

std::string spares_name(std::int64_t spares) {
  return spares == 0 ? "no spare node" : counted(static_cast<std::size_t>(spares), "spare node");
}

std::string checkpoints_text(const RobustCandidate& candidate) {
  if (candidate.checkpoints.empty()) return "none";
  return fmt::format("to {}", fmt::join(candidate.checkpoints, ", "));
}

std::string money(double dollars) { return "$" + grouped(dollars, 0); }

std::string head(const RobustResult& result) {
  return fmt::format("{}, horizon {}\n", result.trace, duration(result.horizon.value));
}

/// A row of the table of those that were judged.
void judged_row(Table& table, const char* role, const RobustCandidate& one,
                const Interval* behind) {
  table.row({role, experiments::policy_in_words(one.policy, one.new_plans_by), one.plan,
             std::to_string(one.spare_nodes), interval_name(one.interval),
             interval_cell(one.tokens_per_second, 1, 0), interval_cell(one.tokens_per_dollar, 1, 0),
             one.dollars_per_day > 0 ? money(one.dollars_per_day) : "-",
             behind == nullptr ? "" : share_cell(*behind)});
}

std::string judged_table(const RobustResult& result) {
  Table table;
  table.column("").column("policy").column("plan").number("spare nodes").column("interval");
  table.number("tokens/s").number("tokens/$").number("$/day").number("chosen is better by, %");
  judged_row(table, "chosen", *result.best, nullptr);
  if (result.runner_up) {
    judged_row(table, "second", *result.runner_up, result.lead ? &*result.lead : nullptr);
  }
  if (result.plan_then_policy) {
    judged_row(table, "plan, then policy", *result.plan_then_policy,
               result.gain ? &*result.gain : nullptr);
  }
  return table.text(0, colors());
}

std::string candidates_table(const RobustResult& result) {
  Table table;
  table.column("policy").column("plan").number("spare nodes").column("interval");
  table.number("replays").number("tokens/s").number("slower than best, %");
  for (std::size_t i = 0; i < result.candidates.size() && i < kCandidatesShown; ++i) {
    const RobustCandidate& one = result.candidates[i];
    table.row({experiments::policy_in_words(one.policy, one.new_plans_by), one.plan,
               std::to_string(one.spare_nodes), interval_name(one.interval),
               std::to_string(one.replays), interval_cell(one.tokens_per_second, 1, 0),
               i == 0 ? "" : share_cell(one.behind)});
  }
  std::string text = table.text(0, colors());
  if (result.candidates.size() > kCandidatesShown) {
    text += fmt::format("... and {} more (--json)\n", result.candidates.size() - kCandidatesShown);
  }
  return text;
}

std::string rest_text(const RobustResult& result) {
  std::string text;
  if (!result.unable.empty()) {
    text += "\n" + section("Cannot run here", lines_text(result.unable, 20));
  }
  if (!result.without_plan.empty()) {
    text += "\n" + section("No plan", lines_text(result.without_plan, 8));
  }
  return text;
}

/// "by 3.1 % (2.0 to 4.2)".
std::string by(const Interval& behind) {
  std::string text = fmt::format("{:.1f} %", 100 * behind.mean);
  if (std::isfinite(behind.low) && behind.high > behind.low) {
    text += fmt::format(" ({:.1f} to {:.1f})", 100 * behind.low, 100 * behind.high);
  }
  return text;
}

/// The alternatives of one kind, nearest first.
std::vector<RobustAlternative> of_kind(const RobustResult& result, const std::string& what) {
  std::vector<RobustAlternative> out;
  for (const RobustAlternative& each : result.alternatives) {
    if (each.what == what) out.push_back(each);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.behind.mean < b.behind.mean; });
  return out;
}

std::string alternatives_text(const RobustResult& result, const std::string& what,
                              const std::string& prefix, std::size_t most) {
  std::string text;
  const std::vector<RobustAlternative> all = of_kind(result, what);
  for (std::size_t i = 0; i < all.size() && i < most; ++i) {
    const Interval& behind = all[i].behind;
    const bool told =
        std::isfinite(behind.low) && (behind.low > 0 || behind.high < 0) && all[i].replays > 1;
    text += fmt::format("    {}{}: {} {}{}\n", prefix, all[i].value, by(behind),
                        behind.mean < 0 ? "more" : "fewer",
                        told ? "" : ", not statistically distinguishable");
  }
  return text;
}

std::string objective_name(const RobustResult& result) {
  return result.objective == experiments::RobustObjective::tokens ? "tokens" : "tokens per dollar";
}

/// Fleets that could be rented: those that were tried, and how many cannot reach the target.
std::string fleets_text(const RobustResult& result) {
  if (result.fleets.empty()) return "";
  Table table;
  table.column("fleet").number("GPUs").number("$/h").number("bound, tokens/s").number("tokens/s");
  std::size_t passed = 0;
  for (const experiments::RobustFleet& fleet : result.fleets) {
    if (!fleet.tried) {
      ++passed;
      continue;
    }
    table.row({fleet.nodes, std::to_string(fleet.gpus), grouped(fleet.dollars_per_hour, 2),
               grouped(fleet.most_tokens_per_second, 0),
               fleet.tokens_per_second ? interval_cell(*fleet.tokens_per_second, 1, 0)
                                       : "its plans are too slow"});
  }
  const std::string verdict =
      result.fleet
          ? fmt::format("Rent {}: ${} an hour at list or spot prices of the cluster file.\n",
                        result.fleet->nodes, grouped(result.fleet->dollars_per_hour, 2))
          : "No fleet on offer reaches the target.\n";
  return section("Fleets, cheapest first", table.text(0, colors())) +
         fmt::format("{} cheaper or as cheap passed over: no plan on them can be fast enough\n",
                     counted(passed, "fleet")) +
         verdict + "\n";
}

std::string nothing_text(const RobustResult& result) {
  if (!result.fleets.empty()) return fleets_text(result);
  return head(result) + "\nNo policy can run any plan.\n" + rest_text(result);
}

}  // namespace

std::string robust_text(const RobustResult& result) {
  if (!result.best) return nothing_text(result);
  std::string text = head(result) + "\n";
  text +=
      section(fmt::format("Judged on {} other traces", result.best->replays), judged_table(result));
  text += "Checkpoints of the choice: " + checkpoints_text(*result.best) + "\n";
  text += "\n" + section(fmt::format(
                             "Candidates, after {} replays{}", result.replays,
                             result.settled
                                 ? ": the first is statistically distinguishable from all finalists"
                                 : ""),
                         candidates_table(result));
  return text + rest_text(result);
}

std::string advice_text(const RobustResult& result) {
  if (!result.best) return nothing_text(result);
  const RobustCandidate& best = *result.best;
  std::string text = fleets_text(result) + head(result) + "\n";
  text += fmt::format("Plan: {}\n", best.plan) + alternatives_text(result, "plan", "", 3);
  text += fmt::format("Recovery policy: {}\n", best.policy) +
          alternatives_text(result, "policy", "", 3);
  text += fmt::format("New plans: by {}\n",
                      best.new_plans_by.empty() ? "its own planner" : best.new_plans_by) +
          alternatives_text(result, "new plans", "by ", 2);
  text += fmt::format("Spares: {}\n", spares_name(best.spare_nodes)) +
          alternatives_text(result, "spares", "", 4);
  text += fmt::format("Checkpoints: {} ({} interval)\n", checkpoints_text(best),
                      interval_name(best.interval)) +
          alternatives_text(result, "interval", "", 4);
  text += fmt::format(
      "\nBelow each choice: its best alternatives, and how many {} fewer they come to on the "
      "traces of the search.\n",
      objective_name(result));
  text += fmt::format(
      "\nExpected, over {} traces that the search has not seen: {} tokens/s "
      "({} undisturbed), {} interruptions in {}",
      best.replays, interval_cell(best.tokens_per_second, 1, 0),
      grouped(best.undisturbed_tokens_per_second, 0), grouped(best.interruptions, 1),
      duration(result.horizon.value));
  if (best.dollars_per_day > 0) {
    text += fmt::format(", {} a day, {} in all, {} tokens per dollar", money(best.dollars_per_day),
                        money(best.dollars_per_day * result.horizon.value / kDay),
                        interval_cell(best.tokens_per_dollar, 1, 0));
  } else {
    text += "; no dollars: a GPU type has no price (--price)";
  }
  text += ".\n";
  if (result.gain) {
    text += fmt::format("That is {} % {} more than the fastest plan with the best policy for it.\n",
                        share_cell(*result.gain), objective_name(result));
  }
  std::vector<std::pair<std::string, double>> wall(best.wall.begin(), best.wall.end());
  std::stable_sort(wall.begin(), wall.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string shares;
  for (auto& [bucket, share] : wall) {
    if (share < 5e-4) continue;
    std::replace(bucket.begin(), bucket.end(), '_', ' ');
    shares += fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", bucket, 100 * share);
  }
  text += "Where the time goes: " + shares + "\n";
  return text + rest_text(result);
}

}  // namespace orrery::tools
