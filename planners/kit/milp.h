/// Mixed-integer linear programs behind one small interface. The solver is CBC (Debian's
/// coinor-libcbc-dev), seen by milp.cpp alone and optional when Orrery is built: without it
/// milp_available() is false and solve() answers `unavailable`. Runs are single threaded, silent
/// and reproducible: searches end on counted nodes, never on the clock.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::planners {

/// No bound on this side of a variable or row. Its negative likewise.
inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// `coefficient` times the variable with this number.
struct MilpTerm {
  int variable = 0;
  double coefficient = 0;
};
using MilpTerms = std::vector<MilpTerm>;

/// Minimize the sum of objective coefficients times variables, subject to rows and bounds.
class MilpModel {
 public:
  struct Variable {
    double low = 0;
    double high = kUnbounded;
    double objective = 0;
    bool integer = false;
  };
  struct Row {
    MilpTerms terms;
    double low = -kUnbounded;
    double high = kUnbounded;
  };

  /// The number of the new variable: 0, 1, ... `low` may be above `high`: then nothing is feasible.
  int add(const Variable& variable);
  int add_binary(double objective = 0) { return add({0, 1, objective, true}); }
  /// low <= sum of terms <= high. Terms of the same variable add up; terms with coefficient 0 and
  /// rows without bounds do nothing. Variables must exist.
  void add_row(MilpTerms terms, double low, double high);

  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Variable> variables_;
  std::vector<Row> rows_;
};

enum class MilpStatus {
  optimal,            ///< The values are a minimum, up to the solver's tolerances.
  node_limit,         ///< Ended early; values if a solution was found, and a bound.
  canceled,           ///< As node_limit, ended from outside.
  infeasible,         ///< No solution, or none better than MilpLimits::cutoff.
  unbounded,          ///< There are solutions of any objective.
  numerical_trouble,  ///< The solver gave up; values if a solution was found, no bound.
  unavailable,        ///< This build has no solver.
};

struct MilpLimits {
  /// Nodes of the search tree, the root included, at least 1; the work that solve() counts.
  std::int64_t nodes = std::numeric_limits<std::int64_t>::max();
  /// Only solutions with a lower objective count.
  double cutoff = kUnbounded;
  /// Looked at after each node; may be null.
  const std::atomic<bool>* canceled = nullptr;
};

struct MilpResult {
  MilpStatus status = MilpStatus::unavailable;
  /// By variable, integers rounded; empty: no solution found.
  std::vector<double> values;
  double objective = kUnbounded;  ///< Of `values`.
  double bound = -kUnbounded;     ///< No solution is below.
  std::int64_t nodes = 0;         ///< Explored: at most the limit.

  /// (objective - bound) / |objective|, 0 when proved; infinite without values or bound.
  double gap() const;
};

/// This build has a solver.
bool milp_available();

/// Solutions satisfy rows and bounds within 1e-7 (absolute, on rows as they were given) and
/// integrality within 1e-9 before rounding: keep the coefficients near 1. Equal input gives equal
/// output. Safe to call from several threads on different models.
MilpResult solve(const MilpModel& model, const MilpLimits& limits = {});

}  // namespace orrery::planners
