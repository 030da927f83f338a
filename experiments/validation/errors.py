"""Errors of predictions against measurements, for all studies that validate: rows go in (one for
each case and metric), tables and CSV files come out. Only rows that were measured, that count
(`scored`) and that no parameter was fitted on enter an error. The error of a row is
(predicted - measured) / measured.

predictions.csv has a line for each case, measured or not, by its id; errors.csv a line for each set
and metric; parameters.csv what was fitted, on how many rows, with its leave-one-out error. Numbers
are written with nine significant digits: same input, same bytes."""

from dataclasses import dataclass, field

from orrery import errors_csv, summarize_errors  # noqa: F401  (studies write tables)


@dataclass
class Row:
    """One metric of one case."""
    id: str  # unique with `metric`
    set: str  # cases whose errors are counted together
    metric: str  # with unit: iteration_s, peak_memory_bytes
    predicted: float
    measured: float | None = None  # positive
    scored: bool = True  # False: the measurement is doubtful and does not count
    fitted: bool = False  # a parameter of this metric was fitted on it

    def error(self):
        """Signed and relative; None without a measurement."""
        if self.measured is None:
            return None
        return (self.predicted - self.measured) / self.measured

    def use(self):
        if self.measured is None:
            return "unmeasured"
        if self.fitted:
            return "fitted"
        return "scored" if self.scored else "unscored"


@dataclass
class Parameter:
    """A parameter that was fitted."""
    name: str
    unit: str
    value: float = 0.0
    fitted_on: list[str] = field(default_factory=list)  # ids
    # Mean absolute relative error of each of these rows, predicted with the value that the others
    # give.
    leave_one_out: float = 0.0


def number(value):
    """Nine significant digits; "" for None."""
    return "" if value is None else f"{value:.9g}"


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}"


def cell(text):
    """A cell of CSV, in quotes where RFC 4180 asks for them."""
    if not any(character in text for character in ',"\n\r'):
        return text
    return '"' + text.replace('"', '""') + '"'


def summarize(name, metric, errors, ids=(), target=None, published=None):
    """A line of an error table: the summary of signed relative errors. `ids` are those of the rows,
    for the worst of them. `target`: mean error aimed at; `published`: smallest published mean error
    of others; both relative."""
    line = summarize_errors(name, metric, errors, list(ids))
    line.target, line.published_best = target, published
    return line


def summarize_rows(rows, name, metric, **more):
    """The same of the rows with this set and metric that count."""
    taken = [row for row in rows
             if row.metric == metric and row.set == name and row.use() == "scored"]
    return summarize(name, metric, [row.error() for row in taken], [row.id for row in taken],
                     **more)


def error_table(lines):
    """For people: columns padded, errors in per cent with one decimal."""
    wide = max([3] + [len(line.set) for line in lines])
    metric = max([6] + [len(line.metric) for line in lines])
    table = (f"{'set':<{wide}}  {'metric':<{metric}}  rows   mean  median    max    bias  target  "
             "published  worst\n")
    for line in lines:
        table += f"{line.set:<{wide}}  {line.metric:<{metric}}  {line.rows:>4}  "
        if line.rows == 0:
            table += "nothing measured\n"
            continue
        table += (f"{100 * line.mean:>5.1f}  {100 * line.median:>6.1f}  {100 * line.max:>5.1f}  "
                  f"{100 * line.bias:>+6.1f}  {percent(line.target):>6}  "
                  f"{percent(line.published_best):>9}")
        table += f"  {line.worst}\n" if line.worst else "\n"
    return table


def predictions_csv(rows):
    """id,set,scored and for each metric, in order of appearance, <metric>_predicted,
    <metric>_measured, <metric>_error, <metric>_use (scored, fitted, unscored, unmeasured). `scored`
    is false where a metric of the case does not count."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    cases = {}
    for row in rows:
        case = cases.setdefault(row.id, {})
        assert row.metric not in case, f"two rows of {row.id} with {row.metric}"
        case[row.metric] = row
    text = "id,set,scored" + "".join(
        f",{m}_predicted,{m}_measured,{m}_error,{m}_use" for m in metrics) + "\n"
    for name, case in cases.items():
        first = next(iter(case.values()))
        scored = all(row.scored for row in case.values())
        text += f"{cell(name)},{cell(first.set)},{'true' if scored else 'false'}"
        for metric in metrics:
            row = case.get(metric)
            text += ",,,," if row is None else (
                f",{number(row.predicted)},{number(row.measured)},{number(row.error())},"
                f"{row.use()}")
        text += "\n"
    return text


def parameters_csv(experiment, parameters):
    """experiment,name,unit,value,rows,fitted_on,leave_one_out; ids joined by spaces."""
    text = "experiment,name,unit,value,rows,fitted_on,leave_one_out\n"
    for one in parameters:
        text += (f"{cell(experiment)},{cell(one.name)},{cell(one.unit)},{number(one.value)},"
                 f"{len(one.fitted_on)},{' '.join(one.fitted_on)},{number(one.leave_one_out)}\n")
    return text


def enough_rows(parameters, rows):
    """Whether that many parameters may be fitted on that many rows: at most a fifth."""
    return 5 * parameters <= rows
