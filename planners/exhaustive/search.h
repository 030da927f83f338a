/// The search of `exhaustive` over given structures: layer splits of each pipeline, shares of the
/// batch, and what each stage does with its share.
///
/// For given structure and splits, gradients and optimizer do not depend on the shares, and a
/// pipeline's time depends on its own share only. So each pipeline and split has a curve, its least
/// time for each number of samples, and the shares come from a dynamic program over the curves.
/// Structures and combinations of splits are left out when a lower bound says that they cannot win.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "planners/exhaustive/costs.h"
#include "planners/exhaustive/space.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/ranking.h"

namespace orrery::planners::exhaustive {

/// Options of the search.
struct ExhaustiveSettings {
  std::int64_t most_plans = 0;
  SpaceLimits limits;
  int evaluate_top = 1;  ///< Best plans that no bound may leave out; 0: all plans.
};

/// Searches all structures under one CommonChoice at a time.
class ExhaustiveSearch {
 public:
  /// Keeps references. `best`: estimates of the best plans so far, ascending.
  ExhaustiveSearch(const PlannerInput& input, const ExhaustiveSettings& settings,
                   const Space& space, SearchReport& report, Ranking& ranking,
                   std::vector<double>& best)
      : input_(input),
        settings_(settings),
        space_(space),
        report_(report),
        ranking_(ranking),
        best_(best),
        estimator_(input),
        samples_(static_cast<std::size_t>(input.job.global_batch)) {}

  /// False when the budget ended it.
  bool run(const CommonChoice& common);
  /// Structures that were searched or left out by a bound, over all runs.
  std::int64_t settled() const { return settled_; }
  /// Choices for a stage that do not fit in memory.
  std::int64_t refused() const { return refused_; }
  /// The pipeline that lacks least memory, of the first few.
  std::string squeeze(const CommonChoice& common);

 private:
  /// Least time for each number of samples, 0 and numbers that are impossible included.
  using Curve = std::vector<double>;

  /// The layer splits of one pipeline that fit in memory for some share of the batch.
  struct Table {
    std::vector<std::vector<int>> splits;
    std::vector<Curve> curves;
    std::vector<double> optimizer;
    Curve relaxed;  ///< Least over the splits.
    double least_optimizer = HUGE_VAL;
  };

  /// Decisions for the stages of a pipeline from some stage on. m micro-batches take
  /// sum + (m - 1) (rate_forward + rate_backward + rate_both); 1F1B has the last, GPipe the others.
  struct Decision {
    double sum = 0;
    double rate_forward = 0;
    double rate_backward = 0;
    double rate_both = 0;
    std::vector<const StageChoice*> stages;  ///< The last stage first.
    double time(int micro_batches) const {
      return sum + (micro_batches - 1) * (rate_forward + rate_backward + rate_both);
    }
  };

  static Curve nothing(std::size_t size);
  static Curve join(const Curve& a, const Curve& b, double limit);
  bool spend();
  double threshold() const;
  bool examine(const Structure& structure);
  bool hopeful();
  const Table* table(int chain, int copies, int pipelines);
  bool fill(Table& table, int chain, const Replicas& replicas, int pipelines);
  Curve curve(int chain, const std::vector<int>& split, const Replicas& replicas);
  using Choices = std::vector<const std::vector<std::vector<StageChoice>>*>;  // By stage.
  Choices choices(int chain, const std::vector<int>& split, const Replicas& replicas,
                  int micro_batches);
  std::vector<Decision> decide(const Choices& choices, std::size_t micro_batch_size) const;
  bool combine(std::size_t pipeline, const Curve& before);
  bool finish_plan(const Curve& shares);
  void offer();
  ir::Plan build(const Replicas& replicas, const std::vector<int>& shares);
  std::string describe(const ir::Plan& plan) const;
  Replicas replicas() const;
  std::vector<Curve> curves_of(const Replicas& replicas);
  const ChainKind& chain(int kind) const { return space_.chains[static_cast<std::size_t>(kind)]; }

  const PlannerInput& input_;
  const ExhaustiveSettings& settings_;
  const Space& space_;
  SearchReport& report_;
  Ranking& ranking_;
  std::vector<double>& best_;  // Estimates of the best plans, as many as are asked for, ascending.
  PlanEstimator estimator_;
  std::size_t samples_;
  std::int64_t settled_ = 0;
  std::int64_t refused_ = 0;

  std::optional<ExhaustiveCosts> costs_;
  std::map<std::tuple<int, int, int>, Table> tables_;
  std::size_t stored_ = 0;

  // The structure in hand.
  const Structure* structure_ = nullptr;
  std::optional<GradientCosts> gradients_;
  std::vector<const Table*> chosen_from_;
  std::vector<std::size_t> chosen_;
  std::vector<Curve> behind_;  // Relaxed, of the pipelines from p on.
  double rest_ = 0;            // Least gradients and optimizer.
};

}  // namespace orrery::planners::exhaustive
