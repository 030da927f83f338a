"""Inputs of Oobleck's Figures 9 and 10: throughput by number of nodes and other people's traces
(read from $ORRERY_DATA; none of that data is kept here), and the constants of the three simulators
of the paper's artifact (SymbioticLab/Oobleck, branch sosp23-artifact, tools/simulator; MIT). Times
in seconds."""

import csv
from dataclasses import dataclass, field

SYSTEMS = ("bamboo", "varuna", "oobleck")
NODE_READY = 45.0  # from `add` until a node can be used
CHECKPOINT_EVERY = 10  # steps, Varuna
LEAST_NODES = 12  # fewer stop the job
BAMBOO_RESTART = 30.0  # after a loss that Bamboo does not survive
BAMBOO_SLOWDOWN = 1.5  # factor on a node that computes two stages
BAMBOO_USEFUL = 0.1971  # share of its work that is not redundant

# BERT-large's restart: 71.3 s with 30 nodes, 112 s with 26 and 3.7 s less for each node below.
# [artifact, varuna_simulator.py]
BERT_RESTART = {30: 71.3, 29: 67.6, 28: 67.6, 27: 49.1} | {
    nodes: (1120 - 37 * (26 - nodes)) / 10.0 for nodes in range(26, 14, -1)}


@dataclass(frozen=True)
class Model:
    """A model of Figure 9 and what the simulators say of it. [artifact, *_simulator.py]"""
    name: str  # as in throughput.csv
    label: str  # as in published.csv
    samples: int  # of a step
    oobleck_stall: float  # reconfiguration
    bamboo_rebuild: float  # reconfiguration at the end of a step
    varuna_checkpoint: float
    varuna_restart: float  # checkpoint included; the first one where it goes by nodes
    # BERT-large only: restart by number of nodes before the loss.
    varuna_restart_by_nodes: dict = field(default_factory=dict)
    # Figure 10 runs Varuna without going back to a checkpoint on the smaller models.
    spot_falls_back: bool = True
    bamboo_fits: bool = False


MODELS = (
    Model("BERT-large", "BERT-L", 8192, 2.0, 76.0, 15.8, 76.0, BERT_RESTART, False, True),
    Model("GPT-2-ours", "GPT-2", 1024, 2.0, 80.0, 11.5, 83.0, {}, False, True),
    Model("GPT-3-medium", "GPT-3 M", 819, 3.0, 100.0, 11.2, 78.7, {}, False, False),
    Model("GPT-3-2.7b", "2.7B", 512, 6.0, 230.0, 50.0, 515.0),
    Model("GPT-3-6.7b", "6.7B", 1024, 10.0, 450.0, 120.0, 701.0),
)


@dataclass(frozen=True)
class Change:
    """A line `ms,add|remove,name` of a trace."""
    ms: int
    comes: bool
    name: str


def read_lines(path, cells, take):
    """Calls `take(line number, cells)` for each line; what it cannot read ends the program."""
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                if row and (len(row) != cells or take(number, row) is False):
                    raise ValueError
            except ValueError:
                raise SystemExit(f"{path}:{number}:1: cannot read '{','.join(row)}'") from None


def read_throughput(path):
    """Samples per second by (model, system) and number of active nodes, 15 to 30."""
    tables = {}

    def take(number, row):
        if number == 1:
            return row[3] == "samples_per_second"
        tables.setdefault((row[0], row[1]), {})[int(row[2])] = float(row[3])
        return True

    read_lines(path, 4, take)
    return tables


def read_changes(path):
    """Lines in the file's order."""
    changes = []

    def take(_, row):
        changes.append(Change(int(row[0]), row[1] == "add", row[2]))
        return row[1] in ("add", "remove")

    read_lines(path, 3, take)
    return changes


def at_nodes(table, nodes):
    """The value of a table by number of nodes; more count as the most, fewer as the fewest."""
    return table[min(max(nodes, min(table)), max(table))]
