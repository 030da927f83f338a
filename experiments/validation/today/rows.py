"""Rows of published tables as runs: the columns that all tables share are read here, once."""

import tables
from today.runs import Run

# Fields of a run by the column that says them.
COUNTS = {"gpus": "gpus", "sequence": "sequence", "global_batch": "global_batch",
          "micro_batch": "micro_batch", "tp": "tensor_parallel", "pp": "pipeline_parallel",
          "virtual_stages": "virtual_stages", "cp": "context_parallel", "ep": "expert_parallel"}
TEXTS = {"gpu": "gpu", "precision": "precision", "recompute": "recompute", "sharded": "sharding"}


def run_of(row, **given):
    """What the row says in these columns; `given` stands in place of them."""
    found = {"id": row.text("id"), "measured": row.number("step_s")}
    for fields, read in ((COUNTS, row.count), (TEXTS, row.text)):
        found |= {name: read(column) for name, column in fields.items()
                  if name not in given and column in row.table.header}
    return Run(**(found | given))


def read(path, columns, problems, read_row):
    """The runs of a table that has these columns, and its problems."""
    runs = []
    for row in tables.Table(path, ["id", *columns], problems):
        run = read_row(row)
        for problem in run.problems():
            row.problem("gpus", problem)
        runs.append(run)
    return runs


def ends_as_layers(run):
    """Whether layers divide evenly only if embedding and loss count as one each."""
    layers = run.model.shape.layers
    return layers % run.chunks != 0 and (layers + 2) % run.chunks == 0
