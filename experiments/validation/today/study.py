"""One validation on today's clusters from rows to errors: fits the free parameters on the rows that
are marked for it, predicts all rows by simulation, predicts each fitting row with the parameters
that the others give, and all rows with nothing fitted. Writes parameters.csv, predictions.csv and
errors.csv and prints the tables.

The fit does not simulate at every point: it moves a closed form of the step, multiplied for each
row with what the simulation of that row gave at the point before, and repeats this until the
simulation confirms the point."""

import argparse
from dataclasses import dataclass, field

import errors
import parallel
import tables
from a100 import fit
from today import cases
from today.runs import DECLARED, RANGES, UNITS

ROUNDS = 2


@dataclass
class Free:
    """A parameter that is fitted, for the runs that `takes` takes."""
    parameter: str  # of DECLARED
    label: str = ""  # of the runs, where there are several of one parameter
    takes: object = staticmethod(lambda run: True)

    @property
    def name(self):
        return f"{self.parameter}[{self.label}]" if self.label else self.parameter


@dataclass
class Fit:
    free: list
    point: list
    rows: list = field(default_factory=list)  # runs that it was fitted on
    left_out: dict = field(default_factory=dict)  # by id: signed error without it in the fit

    def parameters(self, run, point=None):
        chosen = dict(run.parameters)
        for free, value in zip(self.free, self.point if point is None else point):
            if free.takes(run):
                chosen[free.parameter] = value
        return chosen | run.facts


def read_parameters(path, problems):
    """parameters.csv of another study: values by name and label."""
    found = {}
    for row in tables.Table(path, ["name", "value"], problems):
        name, _, label = row.text("name").rstrip("]").partition("[")
        value = row.number("value")
        if name not in DECLARED:
            row.problem("name", f"no parameter is called '{name}'")
        elif value is None or not RANGES[name][0] <= value <= RANGES[name][1]:
            row.problem("value", f"'{row.text('value')}' of {name} is out of range")
        else:
            found[name, label] = value
    return found


def taken_from(found, *labels):
    """Those of read_parameters() that have no label or one of these."""
    return {name: value for (name, label), value in found.items() if label in ("", *labels)}


def key_of(run, parameters):
    """Runs that are simulated alike: their names and measurements do not matter."""
    return (repr(run.model.shape.to_dict()), run.gpu, run.gpus, run.sequence, run.global_batch,
            run.micro_batch, run.tp, run.pp, run.virtual_stages, run.cp, run.ep, run.whole_experts,
            run.model.predicted, run.precision, run.recompute, run.per_op, run.fused, run.sharded,
            run.sequence_parallel, run.ends_count, run.weight_bytes, run.gradient_bytes, run.frozen,
            tuple(sorted(parameters.items())))


class Answers:
    """Simulated steps, each asked for once."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.known = {}

    def to(self, asked, label=""):
        """`asked`: pairs of a run and parameters."""
        new = {key_of(*one): one for one in asked if key_of(*one) not in self.known}
        found = parallel.each(lambda one: cases.simulate(*one), new.values(), self.jobs, label)
        self.known.update(zip(new, found))
        return [self.known[key_of(*one)] for one in asked]


def fit_runs(runs, free, answers):
    rows = [run for run in runs if run.fitted]
    start = DECLARED | {name: value for run in rows for name, value in run.parameters.items()
                        if all(one.parameters.get(name) == value for one in rows)}
    fitted = Fit(list(free), [start[one.parameter] for one in free], rows)
    if not free:
        return fitted
    assert errors.enough_rows(len(free), len(rows)), f"{len(free)} parameters on {len(rows)} rows"
    measured = [run.measured for run in rows]
    space = fit.Space(start=list(fitted.point),
                      least=[RANGES[one.parameter][0] for one in free],
                      most=[RANGES[one.parameter][1] for one in free],
                      tried=[RANGES[one.parameter][2] for one in free])
    details = ratios = None
    for number in range(ROUNDS):
        asked = [(run, fitted.parameters(run)) for run in rows]
        times = answers.to(asked, f"fit {number + 1}")
        ratios = [time.step / cases.estimate(*one) for time, one in zip(times, asked)]

        def model(points, ratios=ratios):
            return [[ratio * cases.estimate(run, fitted.parameters(run, point))
                     for run, ratio in zip(rows, ratios)] for point in points]

        details = fit.fit_rows(measured, space, model)
        fitted.point = details.point
    for place, (run, ratio) in enumerate(zip(rows, ratios)):
        point = fit.point_without(details, place, space)
        time = ratio * cases.estimate(run, fitted.parameters(run, point))
        fitted.left_out[run.id] = time / run.measured - 1
    return fitted


def line(name, runs, found, take=lambda run: True, target=None, published=None):
    """A line of the error table: `found` are errors by id, of which those of runs that count and
    that `take` takes are summarized."""
    taken = [run for run in runs if found.get(run.id) is not None and run.scored and take(run)]
    return errors.summarize(name, "step_s", [found[run.id] for run in taken],
                            [run.id for run in taken], target, published)


def fitted_parameters(fitted):
    size = sum(abs(error) for error in fitted.left_out.values()) / max(1, len(fitted.left_out))
    return [errors.Parameter(free.name, UNITS.get(free.parameter, ""), value,
                             [run.id for run in fitted.rows if free.takes(run)], size)
            for free, value in zip(fitted.free, fitted.point)]


def breakdown_csv(runs, predictions, unseen):
    """id, set, use, gpus, measured_s, predicted_s, error (of a fitting row that of leaving it out),
    and the parts of the predicted time, in seconds."""
    parts = ("compute", "tensor_parallel", "sequence_parallel", "pipeline", "data_parallel", "zero",
             "optimizer", "bubble")
    text = ("id,set,use,gpus,measured_s,predicted_s,error," +
            ",".join(part + "_s" for part in parts) + "\n")
    for run, one in zip(runs, predictions):
        cells = [run.id, run.set, run.use(), run.gpus, errors.number(run.measured),
                 errors.number(one.step), errors.number(unseen.get(run.id))]
        cells += [f"{one.breakdown.get(part, 0.0):.6g}" for part in parts]
        text += ",".join(errors.cell(str(cell)) for cell in cells) + "\n"
    return text


def main(name, read, free, lines, metrics=None, further=None):
    """The program of a study. `read(folder, problems)` gives the runs, `free(runs)` the parameters
    to fit, `lines(runs, errors by id, line)` the error table, `metrics(run, prediction)` further
    rows of predictions.csv, `further(runs)` parameters that are fitted apart from these."""
    parser = argparse.ArgumentParser(description="Predicts measured steps; says how far off")
    parser.add_argument("--data", default=str(tables.measurements(name)),
                        help="folder of the published tables (default: %(default)s)")
    parser.add_argument("--out", default=f"results/validation/{name}", help="folder of the results")
    parser.add_argument("--jobs", type=int, help="simulations at once (default: one for each core)")
    options = parser.parse_args()
    problems = tables.Problems()
    runs = read(options.data, problems)
    problems.raise_any()

    answers = Answers(options.jobs)
    fitted = fit_runs(runs, free(runs), answers)
    predictions = answers.to([(run, fitted.parameters(run)) for run in runs], "predict")
    measured = [run for run in runs if run.measured is not None]
    plain = answers.to([(run, run.facts) for run in measured], "nothing fitted")

    unseen = {run.id: None if run.measured is None else one.step / run.measured - 1
              for run, one in zip(runs, predictions)}
    in_fit = {run.id: unseen[run.id] for run in fitted.rows}
    unseen.update(fitted.left_out)
    without = {run.id: one.step / run.measured - 1 for run, one in zip(measured, plain)}
    table = lines(runs, unseen, line)
    if fitted.free:
        table += [line("fitting rows, in the fit", runs, in_fit),
                  line("fitting rows, leave one out", runs, unseen, lambda run: run.fitted)]
    table.append(line("nothing fitted", runs, without))
    rows = []
    for run, one in zip(runs, predictions):
        rows.append(errors.Row(run.id, run.set, "step_s", one.step, run.measured, run.scored,
                               run.fitted))
        rows += metrics(run, one) if metrics else []
    parameters = fitted_parameters(fitted) + (further(runs) if further else [])
    for file, text in (("parameters.csv", errors.parameters_csv(name, parameters)),
                       ("predictions.csv", errors.predictions_csv(rows)),
                       ("errors.csv", errors.errors_csv(name, table)),
                       ("breakdown.csv", breakdown_csv(runs, predictions, unseen))):
        tables.write(options.out, file, text)
    print(f"{len(parameters)} parameters, fitted on {len(fitted.rows)} rows")
    for one in parameters:
        print(f"  {one.name:<28} {one.value:.4g}{' ' if one.unit else ''}{one.unit}")
    print(f"\nerrors in per cent\n{errors.error_table(table)}")
    print(f"{'id':<66} {'GPUs':>6} {'measured':>9} {'predicted':>9} {'error':>6}")
    for run, one in zip(runs, predictions):
        if run.measured is not None:
            print(f"{run.id:<66.66} {run.gpus:>6} {run.measured:>9.4g} {one.step:>9.4g} "
                  f"{100 * unseen[run.id]:>+6.1f}{' fitted' if run.fitted else ''}")
    print(f"\nwritten to {options.out}")
    return 0
