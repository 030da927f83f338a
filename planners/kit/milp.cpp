#include "planners/kit/milp.h"

#include <cmath>
#include <utility>

#include "models/base/check.h"
#include "planners/kit/integers.h"

#ifdef ORRERY_HAVE_CBC
#include <CbcEventHandler.hpp>
#include <CbcHeuristic.hpp>
#include <CbcHeuristicDiveCoefficient.hpp>
#include <CbcHeuristicFPump.hpp>
#include <CbcModel.hpp>
#include <CglFlowCover.hpp>
#include <CglGomory.hpp>
#include <CglKnapsackCover.hpp>
#include <CglMixedIntegerRounding2.hpp>
#include <CglProbing.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>
#endif

namespace orrery::planners {

int MilpModel::add(const Variable& variable) {
  variables_.push_back(variable);
  return static_cast<int>(variables_.size()) - 1;
}

void MilpModel::add_row(MilpTerms terms, double low, double high) {
  for (const MilpTerm& term : terms) {
    ORRERY_CHECK(term.variable >= 0 && term.variable < static_cast<int>(variables_.size()),
                 "variable {} of {}", term.variable, variables_.size());
  }
  rows_.push_back({std::move(terms), low, high});
}

double MilpResult::gap() const {
  if (values.empty() || !std::isfinite(bound)) return kUnbounded;
  const double difference = std::max(0.0, objective - bound);
  if (difference == 0) return 0;
  return objective == 0 ? kUnbounded : difference / std::abs(objective);
}

#ifdef ORRERY_HAVE_CBC

bool milp_available() { return true; }

namespace {

constexpr double kIntegerTolerance = 1e-9;
constexpr double kPrimalTolerance = 1e-7;
/// Nodes are the counted work, so that each must stay cheap for the program's size.
constexpr int kCutPassesAtRoot = 5;
constexpr int kPumpPasses = 5;

/// Counts nodes and ends the search at the limit or when someone asks for it. CBC works on a clone,
/// so that the counts live outside.
class NodeCounter final : public CbcEventHandler {
 public:
  struct Counts {
    std::int64_t limit = 0;
    const std::atomic<bool>* canceled = nullptr;
    std::int64_t nodes = 0;
    bool stopped = false;
  };
  explicit NodeCounter(Counts* counts) : counts_(counts) {}
  CbcAction event(CbcEvent which) override {
    // Heuristics solve small programs of their own, whose nodes are part of a node of ours.
    if (which != node || model_ == nullptr || model_->parentModel() != nullptr) return noAction;
    ++counts_->nodes;
    const bool ask = counts_->canceled != nullptr && counts_->canceled->load();
    if (!ask && counts_->nodes < counts_->limit) return noAction;
    counts_->stopped = true;
    return stop;
  }
  CbcEventHandler* clone() const override { return new NodeCounter(*this); }

 private:
  Counts* counts_;
};

void load(const MilpModel& model, bool with_objective, OsiClpSolverInterface& solver) {
  const double infinity = solver.getInfinity();
  const auto finite = [&](double value) {
    return std::isinf(value) ? std::copysign(infinity, value) : value;
  };
  const auto& variables = model.variables();
  const std::size_t columns = variables.size();
  std::vector<double> low(columns);
  std::vector<double> high(columns);
  std::vector<double> objective(columns);
  for (std::size_t v = 0; v < columns; ++v) {
    low[v] = finite(variables[v].low);
    high[v] = finite(variables[v].high);
    objective[v] = with_objective ? variables[v].objective : 0;
  }
  std::vector<double> row_low;
  std::vector<double> row_high;
  CoinPackedMatrix matrix(false, 0, 0);  // By rows.
  matrix.setDimensions(0, static_cast<int>(columns));
  std::vector<double> sum(columns, 0);
  for (const MilpModel::Row& row : model.rows()) {
    CoinPackedVector vector;
    for (const MilpTerm& term : row.terms) {
      sum[term.variable] += term.coefficient;
    }
    for (const MilpTerm& term : row.terms) {
      double& coefficient = sum[term.variable];
      if (coefficient != 0) vector.insert(term.variable, coefficient);
      coefficient = 0;
    }
    matrix.appendRow(vector);
    row_low.push_back(finite(row.low));
    row_high.push_back(finite(row.high));
  }
  solver.loadProblem(matrix, low.data(), high.data(), objective.data(), row_low.data(),
                     row_high.data());
  for (std::size_t v = 0; v < columns; ++v) {
    if (variables[v].integer) solver.setInteger(static_cast<int>(v));
  }
  solver.setObjSense(1);
}

void quiet(OsiSolverInterface& solver) {
  solver.messageHandler()->setLogLevel(0);
  solver.setHintParam(OsiDoReducePrint, true, OsiHintTry);
}

void add_cuts_and_heuristics(CbcModel& cbc) {
  CglProbing probing;
  probing.setUsingObjective(true);
  probing.setMaxPass(1);
  probing.setMaxProbe(10);
  probing.setMaxLook(10);
  probing.setRowCuts(3);
  CglGomory gomory;
  gomory.setLimit(300);
  CglKnapsackCover knapsack;
  CglMixedIntegerRounding2 rounding_cuts;
  CglFlowCover flow;
  cbc.addCutGenerator(&probing, -1, "Probing");
  cbc.addCutGenerator(&gomory, -1, "Gomory");
  cbc.addCutGenerator(&knapsack, -1, "Knapsack");
  cbc.addCutGenerator(&rounding_cuts, -1, "MixedIntegerRounding2");
  cbc.addCutGenerator(&flow, -1, "FlowCover");
  CbcRounding rounding(cbc);
  cbc.addHeuristic(&rounding);
  CbcHeuristicFPump pump(cbc);
  pump.setMaximumPasses(kPumpPasses);
  cbc.addHeuristic(&pump);
  CbcHeuristicDiveCoefficient dive(cbc);
  cbc.addHeuristic(&dive);
}

/// The solver's answer, and whether the relaxation has no minimum.
struct Run {
  MilpResult result;
  bool relaxation_unbounded = false;
};

void read_solution(const MilpModel& model, const CbcModel& cbc, MilpResult& result) {
  const double* solution = cbc.bestSolution();
  if (solution == nullptr) return;
  result.objective = 0;
  for (std::size_t v = 0; v < model.variables().size(); ++v) {
    const double value = model.variables()[v].integer ? std::round(solution[v]) : solution[v];
    result.values.push_back(value);
    result.objective += model.variables()[v].objective * value;
  }
}

Run run(const MilpModel& model, const MilpLimits& limits, bool with_objective) {
  Run done;
  MilpResult& result = done.result;
  OsiClpSolverInterface solver;
  quiet(solver);
  load(model, with_objective, solver);
  solver.setDblParam(OsiPrimalTolerance, kPrimalTolerance);
  CbcModel cbc(solver);
  cbc.setLogLevel(0);
  quiet(*cbc.solver());
  cbc.setIntegerTolerance(kIntegerTolerance);
  cbc.setAllowableGap(0);
  cbc.setAllowableFractionGap(0);
  cbc.setCutoffIncrement(1e-9);
  cbc.setRandomSeed(1);
  cbc.setMaximumCutPassesAtRoot(kCutPassesAtRoot);
  cbc.setMaximumCutPasses(1);
  cbc.setNumberStrong(5);
  cbc.setNumberBeforeTrust(5);
  cbc.setNumberThreads(0);
  cbc.initialSolve();
  result.nodes = 1;  // The root.
  if (cbc.solver()->isProvenPrimalInfeasible()) {
    result.status = MilpStatus::infeasible;
    return done;
  }
  if (cbc.solver()->isProvenDualInfeasible()) {
    done.relaxation_unbounded = true;
    return done;
  }
  if (!cbc.solver()->isProvenOptimal()) {
    result.status = MilpStatus::numerical_trouble;
    return done;
  }
  result.bound = cbc.solver()->getObjValue();
  if (std::isfinite(limits.cutoff)) cbc.setCutoff(limits.cutoff);
  NodeCounter::Counts counts{limits.nodes, limits.canceled, 0, false};
  const NodeCounter handler(&counts);
  cbc.passInEventHandler(&handler);
  add_cuts_and_heuristics(cbc);
  cbc.branchAndBound();
  result.nodes = std::max<std::int64_t>(1, counts.nodes);
  read_solution(model, cbc, result);
  if (counts.stopped && cbc.status() != 0) {
    const bool asked = limits.canceled != nullptr && limits.canceled->load();
    result.status = asked ? MilpStatus::canceled : MilpStatus::node_limit;
    result.bound = std::max(result.bound, cbc.getBestPossibleObjValue());
    result.bound = std::min(result.bound, result.objective);
  } else if (cbc.status() == 0) {
    result.status = result.values.empty() ? MilpStatus::infeasible : MilpStatus::optimal;
    result.bound = result.values.empty() ? limits.cutoff : result.objective;
  } else {
    result.status = MilpStatus::numerical_trouble;
    result.bound = -kUnbounded;
  }
  return done;
}

/// CBC takes an empty program for an infeasible one.
MilpResult without_variables(const MilpModel& model) {
  for (const MilpModel::Row& row : model.rows()) {
    if (row.low > 0 || row.high < 0) return {MilpStatus::infeasible, {}, kUnbounded, kUnbounded, 1};
  }
  return {MilpStatus::optimal, {}, 0, 0, 1};
}

}  // namespace

MilpResult solve(const MilpModel& model, const MilpLimits& limits) {
  ORRERY_CHECK(limits.nodes >= 1, "a limit of {} nodes", limits.nodes);
  if (model.variables().empty()) return without_variables(model);
  for (const MilpModel::Variable& variable : model.variables()) {
    if (variable.low > variable.high)
      return {MilpStatus::infeasible, {}, kUnbounded, kUnbounded, 1};
  }
  Run done = run(model, limits, true);
  if (!done.relaxation_unbounded) return std::move(done.result);
  // The relaxation falls without end; so does the program if it has a solution at all.
  MilpLimits any = limits;
  any.cutoff = kUnbounded;
  MilpResult feasible = run(model, any, false).result;
  if (feasible.status == MilpStatus::optimal) feasible.status = MilpStatus::unbounded;
  feasible.values.clear();
  feasible.objective = kUnbounded;
  feasible.bound = -kUnbounded;
  return feasible;
}

#else

bool milp_available() { return false; }

MilpResult solve(const MilpModel&, const MilpLimits&) { return {}; }

#endif

}  // namespace orrery::planners
