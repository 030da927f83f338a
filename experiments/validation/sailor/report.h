/// Predictions of all plans against what was measured: rows, errors, the one fitted parameter, and
/// the texts that are written.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/validation/common/errors.h"
#include "experiments/validation/sailor/data.h"
#include "experiments/validation/sailor/predict.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// One plan, simulated.
struct SailorRow {
  const SailorPlan* plan = nullptr;
  SailorPrediction prediction;
  /// Only where the profile lacks the head: with the profile as it is.
  std::optional<Seconds> without_head;
  /// What sending whole activations instead of slices would add for each micro-batch, at the stage
  /// with most neighbors (each neighbor: one activation, one gradient), on GH200. Not simulated.
  std::optional<Seconds> unsliced;
};

struct SailorReport {
  std::vector<SailorRow> rows;
  FittedParameter overhead;                ///< Bytes of a GH200 beyond what is simulated.
  std::vector<ValidationRow> predictions;  ///< Time of all plans, memory of those on GH200.
  std::vector<ErrorLine> main;             ///< By set.
  std::vector<ErrorLine> groups;           ///< By set and shape (pp, dp, tp, micro-batch).
  std::vector<ErrorLine> others;           ///< Other simulators and the earlier run, same rows.
  std::vector<ErrorLine> overlapped;       ///< If transfers overlapped with passes.
  std::vector<HeadCheck> heads;
};

/// "gh200 OPT-350", "gh200 GPT-Neo-2.7", "rtx OPT-350".
std::string set_of(const SailorPlan& plan);

/// Keeps references to `data`. `progress` is called before each plan.
SailorReport make_sailor_report(const SailorData& data, const std::string& folder,
                                const models::Library& library,
                                const std::function<void(const SailorPlan&)>& progress);

/// Where the time of each plan goes: components.csv.
std::string sailor_components_csv(const SailorReport& report);
/// notes.md: what is measured, assumed and missed, with the figures of this run.
std::string sailor_notes(const SailorReport& report);

}  // namespace orrery::experiments
