#!/usr/bin/python3
"""Predicts every plan of the public Sailor measurements and says how far off (README.md): the rows,
their errors and what was fitted. Writes errors.csv, other_simulators.csv, predictions.csv,
parameters.csv, components.csv and notes.md. `predict.py --help`."""

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import orrery  # noqa: E402
import parallel  # noqa: E402
import tables  # noqa: E402
from sailor import cases, data as sailor_data, notes  # noqa: E402
from today import memory  # noqa: E402

TIME, MEMORY = "iteration_s", "peak_memory_bytes"
FITTED_MODEL = "GPT-Neo-2.7"
SLOTS = [0.25e-3 * number for number in range(17)]  # s, that are tried
# Set, metric, target of docs/accuracy.md. Others are compared with on the same rows only.
AIMS = (("gh200 OPT-350", TIME, 0.055), ("gh200 OPT-350", MEMORY, 0.03),
        ("rtx OPT-350", TIME, 0.04))
TARGET_LEFT_OUT = 0.04
SHAPE = (("pp", lambda plan: len(plan.stages)), ("dp", lambda plan: plan.data_parallel),
         ("tp", lambda plan: plan.tensor_parallel), ("micro-batch", lambda plan: plan.micro_batch))


@dataclass
class Row:
    """One plan, simulated."""
    plan: sailor_data.Plan
    prediction: cases.Prediction
    # Only where the profile lacks the head: seconds with the profile as it is.
    without_head: float | None
    # What sending whole activations instead of slices would add for each micro-batch, at the stage
    # with most neighbors (each neighbor: one activation, one gradient), on GH200, in seconds. Not
    # simulated.
    unsliced: float | None


@dataclass
class Overhead:
    """Bytes of a GH200 beyond what is simulated."""
    constant: errors.Parameter
    slope: errors.Parameter

    def of(self, prediction):
        return self.constant.value + self.slope.value * prediction.activations


@dataclass
class Report:
    rows: list[Row]
    slot: errors.Parameter
    overhead: Overhead
    predictions: list[errors.Row]  # time of all plans, memory of those on GH200
    main: list  # lines of errors by set
    groups: list  # by set and shape (pp, dp, tp, micro-batch)
    others: list  # other simulators and the earlier run, same rows
    overlapped: list  # if transfers overlapped with passes
    heads: list  # Profiles.check_heads


def fit_slot(data, profiles, jobs):
    """What the host takes around each pass where there is a pipeline: of SLOTS the one with the
    smallest mean error of time over the measured plans of one model. Also the error of each of
    them with what the others choose."""
    plans = [plan for plan in data.plans
             if plan.model == FITTED_MODEL and plan.measured.iteration_s is not None]
    slot = errors.Parameter("host around a pass of a pipeline", "s",
                            fitted_on=[plan.id for plan in plans])
    if len(plans) < 2:
        return slot, {}
    assert errors.enough_rows(1, len(plans)), f"one parameter on {len(plans)} rows"
    times = parallel.each(
        lambda plan: cases.iteration_times(plan, data, profiles.completed, SLOTS), plans, jobs,
        "fit")
    found = [[time / plan.measured.iteration_s - 1 for time in row]
             for plan, row in zip(plans, times)]

    def best(rows):
        return min(range(len(SLOTS)), key=lambda place: sum(abs(row[place]) for row in rows))

    slot.value = SLOTS[best(found)]
    left_out = {plan.id: row[best([other for other in found if other is not row])]
                for plan, row in zip(plans, found)}
    slot.leave_one_out = sum(map(abs, left_out.values())) / len(left_out)
    return slot, left_out


def beyond(row):
    """Measured memory beyond what is simulated, by simulated activations."""
    return row.prediction.activations, row.plan.measured.peak_memory_bytes - row.prediction.held


def fit_overhead(rows):
    """What a GH200 holds beyond what is simulated, c + f x activations, as the allocator keeps
    blocks that fit nothing else: Theil and Sen's line over the plans of one model."""
    used = [row for row in rows
            if row.plan.model == FITTED_MODEL and row.plan.measured.peak_memory_bytes is not None]
    ids = [row.plan.id for row in used]
    overhead = Overhead(
        errors.Parameter("memory beyond what is simulated (GH-96)", "bytes", fitted_on=ids),
        errors.Parameter("and for each byte of activations (GH-96)", "", fitted_on=ids))
    if len(used) < 3:  # a line without each of them
        return overhead
    overhead.constant.value, overhead.slope.value = memory.theil_sen([beyond(row) for row in used])
    found = []
    for row in used:
        measured = row.plan.measured.peak_memory_bytes
        constant, slope = memory.theil_sen([beyond(other) for other in used if other is not row])
        found.append((row.prediction.held + constant + slope * row.prediction.activations -
                      measured) / measured)
    left_out = errors.summarize("", MEMORY, found).mean
    overhead.constant.leave_one_out = overhead.slope.leave_one_out = left_out
    return overhead


def validation_rows(rows, overhead):
    found = []
    for row in rows:
        plan = row.plan
        found.append(errors.Row(plan.id, plan.set, TIME, row.prediction.iteration,
                                plan.measured.iteration_s, plan.score,
                                plan.measured.iteration_s is not None and
                                plan.model == FITTED_MODEL))
        if plan.on_gh200:
            measured = plan.measured.peak_memory_bytes
            found.append(errors.Row(plan.id, plan.set, MEMORY,
                                    row.prediction.held + overhead.of(row.prediction), measured,
                                    plan.score,
                                    measured is not None and plan.model == FITTED_MODEL))
    return found


def main_lines(rows, predictions, left_out):
    """Errors by set, with the profile as published where it lacks the head last."""
    lines = [errors.summarize_rows(predictions, name, metric, target=target)
             for name, metric, target in AIMS]
    if left_out:
        lines.append(errors.summarize(f"gh200 {FITTED_MODEL}, leave one out", TIME,
                                      list(left_out.values()), left_out, TARGET_LEFT_OUT))
    without = [errors.Row(row.plan.id, row.plan.set + ", profile as published", TIME,
                          row.without_head, row.plan.measured.iteration_s, row.plan.score)
               for row in rows if row.without_head is not None]
    if without:
        lines.append(errors.summarize_rows(without, without[0].set, TIME))
    return lines


def group_lines(rows, predictions):
    plans = {row.plan.id: row.plan for row in rows}
    groups = {}
    for row in predictions:
        for name, value in SHAPE:
            key = (row.metric, row.set, name, value(plans[row.id]))
            groups.setdefault(key, []).append(row)
    lines = []
    for (metric, name, shape, value), members in sorted(groups.items()):
        group = f"{name}, {shape} {value}"
        line = errors.summarize_rows([replace(row, set=group) for row in members], group, metric)
        whole = errors.summarize_rows(predictions, name, metric)
        if 0 < line.rows < whole.rows:
            lines.append(line)
    return lines


def other_lines(rows):
    """Errors of other sources of values, on the rows that count for us."""
    sources = [("the earlier run", lambda plan: plan.earlier_run)]
    for name in sorted({name for row in rows for name in row.plan.others}):
        sources.append((name, lambda plan, name=name: plan.others.get(name, sailor_data.Values())))
    lines = []
    for metric in (TIME, MEMORY):
        for name in dict.fromkeys(row.plan.set for row in rows):
            plans = [row.plan for row in rows if row.plan.set == name and row.plan.score]
            for source, value in sources:
                pairs = [(getattr(value(plan), metric), getattr(plan.measured, metric))
                         for plan in plans]
                found = [(other - measured) / measured for other, measured in pairs
                         if other is not None and measured is not None]
                if found:
                    lines.append(errors.summarize(f"{name}, {source}", metric, found))
    return lines


def overlapped_lines(rows, predictions):
    """Our own rows, if transfers overlapped with passes."""
    times = {row.plan.id: row.prediction.overlapped for row in rows}
    changed = [replace(row, predicted=times[row.id], set=row.set + ", transfers beside passes")
               for row in predictions]
    return [errors.summarize_rows(changed, name, TIME)
            for name in dict.fromkeys(row.set for row in changed)]


def unsliced_extra(plan, data):
    if not plan.on_gh200 or len(plan.stages) < 2:
        return None
    gpu = plan.stages[0].replicas[0].gpu
    fit = data.bandwidth(gpu, gpu, 1, 1)
    if fit is None:
        return None
    degree = plan.tensor_parallel
    whole = plan.micro_batch * data.layer_memory(plan.model, degree,
                                                 plan.stages[0].last_layer).output
    piece = whole / degree
    crossings = 4.0 if len(plan.stages) > 2 else 2.0
    return crossings * (whole / orrery.sailor_rate(fit, whole) -
                        piece / orrery.sailor_rate(fit, piece))


def make_report(data, folder, jobs=None):
    profiles = cases.Profiles(data, folder)
    slot, left_out = fit_slot(data, profiles, jobs)

    def row_of(plan):
        used = [profiles.completed]
        if not cases.head_is_profiled(data, plan.model, plan.tensor_parallel):
            used.append(profiles.published)
        prediction, *without = cases.predict(plan, data, slot.value, *used)
        return Row(plan, prediction, without[0].iteration if without else None,
                   unsliced_extra(plan, data))

    rows = parallel.each(row_of, data.plans, jobs, "predict")
    overhead = fit_overhead(rows)
    predictions = validation_rows(rows, overhead)
    return Report(rows, slot, overhead, predictions,
                  main_lines(rows, predictions, left_out),
                  group_lines(rows, predictions), other_lines(rows),
                  overlapped_lines(rows, predictions), profiles.check_heads())


def components_csv(report):
    """Where the time of each plan goes."""
    parts = ("compute", "pipeline", "data_parallel", "optimizer", "bubble")
    text = ("id,set,pp,dp,tp,micro_batch,micro_batches,iteration_s,iteration_beside_s,"
            "slowest_compute_s," + ",".join(part + "_s" for part in parts) +
            ",held_bytes,iteration_without_head_s,iteration_s_measured\n")
    for row in report.rows:
        plan, one = row.plan, row.prediction
        times = [one.iteration, one.overlapped, one.slowest_compute]
        times += [one.breakdown[part] for part in parts]
        cells = [plan.id, plan.set, len(plan.stages), plan.data_parallel, plan.tensor_parallel,
                 plan.micro_batch, plan.micro_batches, *map(errors.number, times),
                 f"{one.held:.0f}", errors.number(row.without_head),
                 errors.number(plan.measured.iteration_s)]
        text += ",".join(str(cell) for cell in cells) + "\n"
    return text


def main():
    name = "validation/sailor"
    parser = argparse.ArgumentParser(description="Predicts Sailor's plans; says how far off")
    parser.add_argument("--data", default=str(tables.measurements("sailor")),
                        help="folder of the published tables (default: %(default)s)")
    parser.add_argument("--out", default=f"results/{name}", help="folder of the results")
    parser.add_argument("--jobs", type=int, help="plans at once (default: one for each core)")
    options = parser.parse_args()
    problems = tables.Problems()
    data = sailor_data.read(options.data, problems)
    problems.raise_any()
    report = make_report(data, options.data, options.jobs)
    for file, text in (
            ("predictions.csv", errors.predictions_csv(report.predictions)),
            ("errors.csv", errors.errors_csv(name, report.main + report.groups +
                                             report.overlapped)),
            ("other_simulators.csv", errors.errors_csv(name, report.others)),
            ("parameters.csv", errors.parameters_csv(name, [
                report.slot, report.overhead.constant, report.overhead.slope])),
            ("components.csv", components_csv(report)), ("notes.md", notes.text_of(report))):
        tables.write(options.out, file, text)
    print("Errors in per cent.")
    print(errors.error_table(report.main))
    print(f"The same rows by others\n{errors.error_table(report.others)}")
    print(f"Were transfers to run beside passes\n{errors.error_table(report.overlapped)}")
    print(f"By shape\n{errors.error_table(report.groups)}")
    print(f"Fitted: {report.slot.name} = {1e3 * report.slot.value:.3g} ms on "
          f"{len(report.slot.fitted_on)} rows, leave-one-out "
          f"{100 * report.slot.leave_one_out:.1f} %")
    constant, slope = report.overhead.constant, report.overhead.slope
    print(f"Fitted: {constant.name} = {constant.value / 1e9:.3g} GB + {slope.value:.3g} x "
          f"activations on {len(constant.fitted_on)} rows, leave-one-out "
          f"{100 * constant.leave_one_out:.1f} %")
    print(f"Written to {options.out}")
    return 0


if __name__ == "__main__":
    tables.run(main)
