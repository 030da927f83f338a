"""Fits a few positive parameters of a black-box model: least squares on the logarithm of predicted
over measured, so that rows of 2 s and of 100 s count alike, with Huber's loss, so that a few odd
rows count little [Huber 1964]. Damped Gauss-Newton steps in the logarithms of the parameters with
differences as derivatives [Nocedal and Wright 2006, 10.3]. Parameters that the rows say nothing
about stay near where they start: each start counts like one observation with a standard deviation
of `prior_deviation`.

Deterministic: the same answers of the model give the same fit."""

import math
from dataclasses import dataclass, field

ROW_DEVIATION = 0.05  # standard deviation of the logarithm of a row
DIFFERENCE = 0.03  # step in log for derivatives
TOLERANCE = 1e-3  # a step that improves the loss by less is the last one


@dataclass
class Space:
    """Where parameters may lie; everything is positive."""
    start: list
    least: list
    most: list
    # Other starts of single parameters, tried before the first step: a parameter whose start has no
    # influence on the rows would never move.
    tried: list = field(default_factory=list)
    # Standard deviation of the logarithm of a parameter around its start: with ROW_DEVIATION it
    # weighs the prior against the rows.
    prior_deviation: float = 0.5
    iterations: int = 8
    bend: float = 0.1  # residual in log beyond which rows count linearly

    def prior_weight(self):
        """Weight of the prior of one parameter against a row's."""
        ratio = ROW_DEVIATION / self.prior_deviation
        return ratio * ratio

    def moved(self, point, step):
        return [min(max(value * math.exp(by), least), most)
                for value, by, least, most in zip(point, step, self.least, self.most)]


@dataclass
class Fitted:
    point: list
    residuals: list  # by row: log(predicted / measured)
    loss: float
    slopes: list = field(default_factory=list)  # by row and parameter: derivative by its logarithm


def residuals_of(predicted, measured):
    assert len(predicted) == len(measured), f"{len(predicted)} predictions of {len(measured)} rows"
    return [math.log(own / real) for own, real in zip(predicted, measured)]


def loss_of(residuals, point, space):
    loss = 0.0
    for residual in residuals:
        size = abs(residual)
        loss += size * size / 2 if size <= space.bend else space.bend * (size - space.bend / 2)
    for value, start in zip(point, space.start):
        away = math.log(value / start)
        loss += space.prior_weight() * away * away / 2
    return loss


def quadratic(residuals, slopes, point, space, left_out=None):
    """The loss's quadratic model: normal * step = right."""
    places = range(len(point))
    normal = [[0.0] * len(point) for _ in places]
    right = [0.0] * len(point)
    for row, residual in enumerate(residuals):
        if row == left_out:
            continue
        weight = 1.0 if abs(residual) <= space.bend else space.bend / abs(residual)
        slope = slopes[row]
        for i in places:
            for j in places:
                normal[i][j] += weight * slope[i] * slope[j]
            right[i] -= weight * residual * slope[i]
    for i in places:
        normal[i][i] += space.prior_weight()
        right[i] -= space.prior_weight() * math.log(point[i] / space.start[i])
    return normal, right


def solve(normal, right):
    """normal * x = right with a symmetric positive matrix, by Gauss's elimination."""
    size = len(right)
    rows = [list(row) + [value] for row, value in zip(normal, right)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            for k in range(i, size + 1):
                rows[j][k] -= factor * rows[i][k]
    x = [0.0] * size
    for i in reversed(range(size)):
        left = rows[i][size]
        for k in range(i + 1, size):
            left -= rows[i][k] * x[k]
        x[i] = left / rows[i][i]
    return x


def step_of(normal, right, point, space, damping=0.0):
    """Minimum of the quadratic model, with `damping` added to the diagonal. Parameters that stand
    at a limit and would leave the space stay, and the others move as if they were no parameters."""
    places = range(len(point))
    for i in places:
        normal[i][i] *= 1 + damping
    while True:
        step = solve(normal, right)
        held = [i for i in places if (point[i] <= space.least[i] and step[i] < 0) or
                (point[i] >= space.most[i] and step[i] > 0)]
        if not held:
            return step
        for i in held:
            for j in places:
                normal[i][j] = normal[j][i] = 0.0
            normal[i][i] = 1.0
            right[i] = 0.0


def fit_rows(measured, space, model):
    """The parameters. `model` takes points (one value for each parameter) and returns for each the
    predictions of all rows."""
    best = None

    def keep_best(points):
        """Asks at all points at once; keeps the best of them and of the present one."""
        nonlocal best
        better = False
        for point, predicted in zip(points, model(points)):
            residuals = residuals_of(predicted, measured)
            loss = loss_of(residuals, point, space)
            if best is None or loss < best.loss:
                best = Fitted(point, residuals, loss)
                better = True
        return better

    def differentiate():
        """One-sided differences at the best point, towards the inside of the space."""
        points, lengths = [], []
        for i, value in enumerate(best.point):
            up = value * math.exp(DIFFERENCE) <= space.most[i]
            lengths.append(DIFFERENCE if up else -DIFFERENCE)
            point = list(best.point)
            point[i] *= math.exp(lengths[-1])
            points.append(point)
        moved = [residuals_of(predicted, measured) for predicted in model(points)]
        best.slopes = [[(moved[i][row] - before) / lengths[i] for i in range(len(points))]
                       for row, before in enumerate(best.residuals)]

    starts = [list(space.start)]
    for i, values in enumerate(space.tried):
        for value in values:
            starts.append(list(space.start))
            starts[-1][i] = value
    keep_best(starts)
    damping = 1e-3
    for _ in range(space.iterations):
        differentiate()
        before = best
        for _ in range(4):  # a step, shorter and shorter until it helps
            normal, right = quadratic(before.residuals, before.slopes, before.point, space)
            step = step_of(normal, right, before.point, space, damping)
            if keep_best([space.moved(before.point, step)]):
                damping = max(damping / 10, 1e-6)
                break
            damping *= 30
        if before.loss - best.loss < TOLERANCE * before.loss:
            break
    differentiate()
    return best


def point_without(fitted, left_out, space):
    """The point that all rows except `left_out` give, by the fit's slopes: residuals are linear in
    the logarithms of parameters near the fit. Leave-one-out predictions use it."""
    point = fitted.point
    # Huber's weights change with the residuals; they settle within a few rounds.
    for _ in range(20):
        away = [math.log(now / then) for now, then in zip(point, fitted.point)]
        residuals = list(fitted.residuals)
        for row, slopes in enumerate(fitted.slopes):
            for slope, by in zip(slopes, away):
                residuals[row] += slope * by
        normal, right = quadratic(residuals, fitted.slopes, point, space, left_out)
        point = space.moved(point, step_of(normal, right, point, space))
    return point
