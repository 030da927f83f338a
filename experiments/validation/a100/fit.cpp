#include "experiments/validation/a100/fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <optional>

#include "models/base/check.h"

namespace orrery::experiments {
namespace {

using Point = std::vector<double>;

double huber_loss(double residual, double bend) {
  const double size = std::abs(residual);
  return size <= bend ? size * size / 2 : bend * (size - bend / 2);
}

double huber_weight(double residual, double bend) {
  const double size = std::abs(residual);
  return size <= bend ? 1 : bend / size;
}

/// Weight of the prior of one parameter against a row's.
double prior_weight(const FitRules& rules) {
  const double ratio = rules.row_deviation / rules.prior_deviation;
  return ratio * ratio;
}

std::vector<double> residuals_of(const std::vector<double>& predicted,
                                 const std::vector<double>& measured) {
  ORRERY_CHECK(predicted.size() == measured.size(), "{} predictions for {} rows", predicted.size(),
               measured.size());
  std::vector<double> residuals;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    residuals.push_back(std::log(predicted[i] / measured[i]));
  }
  return residuals;
}

double loss_of(const std::vector<double>& residuals, const Point& point, const FitSpace& space,
               const FitRules& rules) {
  double loss = 0;
  for (const double residual : residuals) loss += huber_loss(residual, rules.huber);
  for (std::size_t p = 0; p < point.size(); ++p) {
    const double away = std::log(point[p] / space.start[p]);
    loss += prior_weight(rules) * away * away / 2;
  }
  return loss;
}

Point moved(const Point& point, const Eigen::VectorXd& step, const FitSpace& space) {
  Point result = point;
  for (std::size_t p = 0; p < point.size(); ++p) {
    result[p] = std::clamp(point[p] * std::exp(step[static_cast<Eigen::Index>(p)]), space.least[p],
                           space.most[p]);
  }
  return result;
}

/// The loss's quadratic model: normal * step = right.
struct Quadratic {
  Eigen::MatrixXd normal;
  Eigen::VectorXd right;
};

Quadratic quadratic(const std::vector<double>& residuals,
                    const std::vector<std::vector<double>>& slopes, const Point& point,
                    const std::optional<std::size_t>& left_out, const FitSpace& space,
                    const FitRules& rules) {
  const auto n = static_cast<Eigen::Index>(point.size());
  Quadratic q{Eigen::MatrixXd::Zero(n, n), Eigen::VectorXd::Zero(n)};
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    if (left_out == i) continue;
    const double weight = huber_weight(residuals[i], rules.huber);
    const Eigen::Map<const Eigen::VectorXd> slope(slopes[i].data(), n);
    q.normal += weight * slope * slope.transpose();
    q.right -= weight * residuals[i] * slope;
  }
  for (std::size_t p = 0; p < point.size(); ++p) {
    const auto i = static_cast<Eigen::Index>(p);
    q.normal(i, i) += prior_weight(rules);
    q.right[i] -= prior_weight(rules) * std::log(point[p] / space.start[p]);
  }
  return q;
}

/// Minimum of the quadratic model, with `damping` added to the diagonal. Parameters that stand at a
/// limit and would leave the space stay, and the others move as if they were no parameters.
Eigen::VectorXd step_of(Quadratic q, const Point& point, const FitSpace& space, double damping) {
  q.normal.diagonal() *= 1 + damping;
  for (;;) {
    const Eigen::VectorXd step = q.normal.ldlt().solve(q.right);
    bool held = false;
    for (std::size_t p = 0; p < point.size(); ++p) {
      const auto i = static_cast<Eigen::Index>(p);
      const bool outwards =
          (point[p] <= space.least[p] && step[i] < 0) || (point[p] >= space.most[p] && step[i] > 0);
      if (!outwards) continue;
      q.normal.row(i).setZero();
      q.normal.col(i).setZero();
      q.normal(i, i) = 1;
      q.right[i] = 0;
      held = true;
    }
    if (!held) return step;
  }
}

class Fitter {
 public:
  Fitter(const std::vector<double>& measured, const FitSpace& space, const FitRules& rules,
         const FitModel& model)
      : measured_(measured), space_(space), rules_(rules), model_(model) {}

  FittedPoint run() {
    choose_start();
    double damping = 1e-3;
    for (int i = 0; i < rules_.iterations; ++i) {
      differentiate();
      const double before = best_.loss;
      improve(damping);
      if (before - best_.loss < rules_.tolerance * before) break;
    }
    differentiate();
    return best_;
  }

 private:
  /// Asks at all points at once; keeps the best of them and of the present one.
  bool keep_best(const std::vector<Point>& points) {
    const auto answers = model_(points);
    bool better = false;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::vector<double> residuals = residuals_of(answers[i], measured_);
      const double loss = loss_of(residuals, points[i], space_, rules_);
      if (!best_.point.empty() && loss >= best_.loss) continue;
      best_.point = points[i];
      best_.residuals = residuals;
      best_.loss = loss;
      better = true;
    }
    return better;
  }

  void choose_start() {
    std::vector<Point> points = {space_.start};
    for (std::size_t p = 0; p < space_.tried.size(); ++p) {
      for (const double value : space_.tried[p]) {
        points.push_back(space_.start);
        points.back()[p] = value;
      }
    }
    keep_best(points);
  }

  /// One-sided differences at the best point, towards the inside of the space.
  void differentiate() {
    std::vector<Point> points;
    std::vector<double> lengths;
    for (std::size_t p = 0; p < best_.point.size(); ++p) {
      Point point = best_.point;
      const bool up = point[p] * std::exp(rules_.difference) <= space_.most[p];
      lengths.push_back(up ? rules_.difference : -rules_.difference);
      point[p] *= std::exp(lengths.back());
      points.push_back(point);
    }
    const auto answers = model_(points);
    best_.slopes.assign(measured_.size(), std::vector<double>(points.size()));
    for (std::size_t p = 0; p < points.size(); ++p) {
      const std::vector<double> residuals = residuals_of(answers[p], measured_);
      for (std::size_t i = 0; i < residuals.size(); ++i) {
        best_.slopes[i][p] = (residuals[i] - best_.residuals[i]) / lengths[p];
      }
    }
  }

  /// A step, shorter and shorter until it helps.
  void improve(double& damping) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const Eigen::VectorXd step = step_of(
          quadratic(best_.residuals, best_.slopes, best_.point, std::nullopt, space_, rules_),
          best_.point, space_, damping);
      if (keep_best({moved(best_.point, step, space_)})) {
        damping = std::max(damping / 10, 1e-6);
        return;
      }
      damping *= 30;
    }
  }

  const std::vector<double>& measured_;
  const FitSpace& space_;
  const FitRules& rules_;
  const FitModel& model_;
  FittedPoint best_;
};

}  // namespace

FittedPoint fit_rows(const std::vector<double>& measured, const FitSpace& space,
                     const FitRules& rules, const FitModel& model) {
  ORRERY_CHECK(space.start.size() == space.least.size() && space.start.size() == space.most.size(),
               "{} parameters, {} and {} limits", space.start.size(), space.least.size(),
               space.most.size());
  return Fitter(measured, space, rules, model).run();
}

std::vector<double> point_without(const FittedPoint& fitted, std::size_t left_out,
                                  const FitSpace& space, const FitRules& rules) {
  Point point = fitted.point;
  // Huber's weights change with the residuals; they settle within a few rounds.
  for (int round = 0; round < 20; ++round) {
    std::vector<double> residuals = fitted.residuals;
    for (std::size_t i = 0; i < residuals.size(); ++i) {
      for (std::size_t p = 0; p < point.size(); ++p) {
        residuals[i] += fitted.slopes[i][p] * std::log(point[p] / fitted.point[p]);
      }
    }
    const Quadratic q = quadratic(residuals, fitted.slopes, point, left_out, space, rules);
    point = moved(point, step_of(q, point, space, 0), space);
  }
  return point;
}

}  // namespace orrery::experiments
