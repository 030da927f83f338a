"""One validation on A100 clusters from rows to errors: fits the free parameters on the rows that
are marked for it, predicts all rows with the whole simulation, and predicts each fitting row with
the parameters that the others give. Writes parameters.csv, predictions.csv, errors.csv and
breakdown.csv and prints the tables."""

import argparse
import math
from dataclasses import dataclass

import errors
import parallel
import tables
from a100 import cases, fit
from a100.runs import DECLARED, GPUS_PER_NODE, RANGES, UNITS, read_parameters


@dataclass
class Fit:
    parameters: dict
    rows: list  # indices of the runs that it was fitted on
    left_out: list  # by row of `rows`: signed error without it in the fit
    details: fit.Fitted


class Answers:
    """Folded iteration times, each simulated once: parameters that a run does not depend on do not
    count."""

    def __init__(self, runs, jobs):
        self.jobs = jobs
        self.cases = [cases.make_case(run, folded=True) for run in runs]
        self.known = {}

    def to(self, asked, label=""):
        """`asked`: pairs of a run's index and parameters."""
        asked = [(row, parameters if self.cases[row].run.software.older
                  else parameters | {"older_software": 1.0}) for row, parameters in asked]
        keys = [(row, *parameters.values()) for row, parameters in asked]
        new = {key: question for key, question in zip(keys, asked) if key not in self.known}
        times = parallel.each(
            lambda question: cases.simulate(self.cases[question[0]], question[1]).iteration,
            new.values(), self.jobs, label)
        self.known.update(zip(new, times))
        return [self.known[key] for key in keys]


def fit_runs(runs, free, jobs=None, bend=fit.Space.bend):
    """Fits the parameters `free` in folded simulations; the others keep their declared values.
    `bend`: of fit.Space."""
    rows = [i for i, run in enumerate(runs) if run.fitted]
    assert errors.enough_rows(len(free), len(rows)), f"{len(free)} parameters on {len(rows)} rows"
    measured = [runs[i].measured for i in rows]
    answers = Answers([runs[i] for i in rows], jobs)
    space = fit.Space(start=[DECLARED[name] for name in free],
                      least=[RANGES[name][0] for name in free],
                      most=[RANGES[name][1] for name in free],
                      tried=[RANGES[name][2] for name in free], bend=bend)

    def at(point):
        return DECLARED | dict(zip(free, point))

    def model(points):
        asked = [(row, at(point)) for point in points for row in range(len(rows))]
        times = answers.to(asked, "fit")
        return [times[i:i + len(rows)] for i in range(0, len(times), len(rows))]

    details = fit.fit_rows(measured, space, model)
    without = answers.to([(row, at(fit.point_without(details, row, space)))
                          for row in range(len(rows))], "leave one out")
    return Fit(at(details.point), rows,
               [time / real - 1 for time, real in zip(without, measured)], details)


def predict(runs, parameters, folded=False, jobs=None, label=""):
    return parallel.each(lambda run: cases.simulate(cases.make_case(run, folded), parameters), runs,
                         jobs, label)


def unseen_errors(runs, predictions, fitted):
    """Signed errors of all measured runs, each predicted without having been fitted on: the fitting
    rows by leave-one-out. None without a measurement."""
    unseen = [None if run.measured is None else one.iteration / run.measured - 1
              for run, one in zip(runs, predictions)]
    for row, error in zip(fitted.rows, fitted.left_out):
        unseen[row] = error
    return unseen


def line(name, runs, found, take=lambda run: True, target=None, published=None):
    """A line of the error table: `found` are errors by run, of which those of runs that count and
    that `take` takes are summarized."""
    taken = [(error, run.id) for run, error in zip(runs, found)
             if error is not None and run.scored and take(run)]
    return errors.summarize(name, "iteration_s", [error for error, _ in taken],
                            [name for _, name in taken], target, published)


def errors_with(name, runs, parameters, jobs):
    """Errors of all measured runs with parameters that none of them was asked for."""
    measured = [run for run in runs if run.measured and run.tp <= GPUS_PER_NODE]
    predictions = predict(measured, parameters, True, jobs, name)
    return line(name, measured, [one.iteration / run.measured - 1
                                 for run, one in zip(measured, predictions)])


def iteration_rows(runs, predictions):
    return [errors.Row(run.id, run.set, "iteration_s", one.iteration, run.measured, run.scored,
                       run.fitted) for run, one in zip(runs, predictions)]


def fitted_parameters(runs, free, fitted):
    mean = 0.0
    for error in fitted.left_out:
        mean += abs(error)
    mean /= len(fitted.left_out)
    return [errors.Parameter(name, UNITS.get(name, ""), fitted.parameters[name],
                             [runs[i].id for i in fitted.rows], mean) for name in free]


def breakdown_csv(runs, predictions, unseen):
    """id, measured_s, predicted_s, error (unseen), then tp, pp, dp, micro_batch, micro_batches,
    virtual_stages and the parts of the predicted time, in seconds."""
    parts = ("compute", "tensor_parallel", "pipeline", "data_parallel", "optimizer", "bubble")
    text = ("id,set,use,measured_s,predicted_s,error,tp,pp,dp,micro_batch,micro_batches,"
            "virtual_stages," + ",".join(part + "_s" for part in parts) + "\n")
    for run, one, error in zip(runs, predictions, unseen):
        cells = [run.id, run.set, run.use(), errors.number(run.measured),
                 errors.number(one.iteration), errors.number(error), run.tp, run.pp, run.dp,
                 run.micro_batch, run.micro_batches, run.virtual_stages]
        cells += [f"{one.breakdown[part]:.6g}" for part in parts]
        text += ",".join(str(cell) for cell in cells) + "\n"
    return text


def residual_table(name, runs, unseen, value):
    """Mean signed and mean absolute error by value of a property, one line each: where the error
    comes from."""
    groups = {}
    for run, error in zip(runs, unseen):
        if error is not None:
            groups.setdefault(value(run), []).append(error)
    text = f"{name:<16} rows   bias   mean\n"
    for key, found in sorted(groups.items()):
        bias = size = 0.0
        for error in found:
            bias += error
            size += abs(error)
        text += (f"{key:>16} {len(found):>4} {100 * bias / len(found):>+6.1f} "
                 f"{100 * size / len(found):>6.1f}\n")
    return text


PROPERTIES = (("tp", lambda run: run.tp), ("pp", lambda run: run.pp), ("dp", lambda run: run.dp),
              ("micro-batch", lambda run: run.micro_batch),
              ("micro-batches", lambda run: run.micro_batches), ("hidden", lambda run: run.hidden))


def folding_error(runs, predictions, fitted):
    """Largest relative difference between the folded simulations of the fit and the whole ones."""
    largest = 0.0
    for row, residual in zip(fitted.rows, fitted.details.residuals):
        folded = math.exp(residual) * runs[row].measured
        largest = max(largest, abs(folded / predictions[row].iteration - 1))
    return largest


def main(name, free, read, lines, more_rows=None, bend=fit.Space.bend):
    """The program of a study. `read(folder, problems)` gives the runs, `lines(runs, unseen)` the
    error table, `more_rows(runs, predictions, folder)` further metrics."""
    parser = argparse.ArgumentParser(description="Predicts measured iterations; says how far off")
    parser.add_argument("--data", default=str(tables.measurements(name)),
                        help="folder of the published tables (default: %(default)s)")
    parser.add_argument("--out", default=f"results/validation/{name}", help="folder of the results")
    parser.add_argument("--jobs", type=int, help="simulations at once (default: one for each core)")
    parser.add_argument("--cross", help="parameters.csv of the other study: predict with these too")
    options = parser.parse_args()
    problems = tables.Problems()
    runs = read(options.data, problems)
    others = {"nothing fitted": DECLARED}
    if options.cross:
        others["cross parameters"] = read_parameters(options.cross, problems)
    problems.raise_any()

    more_lines = [errors_with(label, runs, parameters, options.jobs)
                  for label, parameters in others.items()]
    fitted = fit_runs(runs, free, options.jobs, bend)
    parameters = fitted_parameters(runs, free, fitted)
    predictions = predict(runs, fitted.parameters, False, options.jobs, "predict")
    rows = iteration_rows(runs, predictions)
    if more_rows:
        rows += more_rows(runs, predictions, options.data)
    unseen = unseen_errors(runs, predictions, fitted)
    table = lines(runs, unseen) + more_lines
    for file, text in (("parameters.csv", errors.parameters_csv(name, parameters)),
                       ("predictions.csv", errors.predictions_csv(rows)),
                       ("errors.csv", errors.errors_csv(name, table)),
                       ("breakdown.csv", breakdown_csv(runs, predictions, unseen))):
        tables.write(options.out, file, text)

    print(f"{len(parameters)} parameters, fitted on {len(fitted.rows)} rows; folded simulations of "
          f"them are off by {100 * folding_error(runs, predictions, fitted):.2f} %")
    for one in parameters:
        print(f"  {one.name:<16} {one.value:.4g}{' ' if one.unit else ''}{one.unit}")
    print(f"\nerrors in per cent\n{errors.error_table(table)}")
    print("residuals of rows unseen by the fit, in per cent (bias: mean signed)")
    for label, value in PROPERTIES:
        print(residual_table(label, runs, unseen, value), end="")
    print(f"\nwritten to {options.out}")
    return 0

