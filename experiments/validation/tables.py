"""Published tables as the studies read them: CSV files with a header, cells by column name. What is
wrong in them is said with file, line and column, all of it at once."""

import difflib
import math
import re
import sys
from pathlib import Path

from orrery import ConfigError, Problem

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?|[0-9]+\.")


class Problems:
    """What is wrong in the files of a study."""

    def __init__(self):
        self.found = []

    def add(self, file, line, column, what, hint=""):
        """Lines and columns count from 1; 0: unknown."""
        self.found.append(Problem(str(file), line, column, what, hint))

    def raise_any(self):
        """Throws ConfigError with all problems, in the order of their places."""
        files = list(dict.fromkeys(problem.file for problem in self.found))
        if self.found:
            raise ConfigError(sorted(self.found, key=lambda problem: (
                files.index(problem.file), problem.line, problem.column)))


class Row:
    """A line of a table. Cells that cannot be read add a problem and read as 0 or None."""

    def __init__(self, table, line, cells):
        self.table = table
        self.line = line
        self.cells = cells

    def text(self, column):
        """"" where the table has no such column."""
        header = self.table.header
        return self.cells[header.index(column)] if column in header else ""

    def count(self, column, least=1):
        """A whole number."""
        text = self.text(column)
        if text.isascii() and text.isdigit() and int(text) >= least:
            return int(text)
        kind = "positive" if least > 0 else "non-negative"
        self.problem(column, f"'{text}' is no {kind} whole number")
        return 0

    def number(self, column):
        """Positive; None where the cell is empty or the column is missing."""
        text = self.text(column)
        if not text:
            return None
        value = float(text) if NUMBER.fullmatch(text) else 0.0
        if 0 < value < math.inf:
            return value
        self.problem(column, f"'{text}' is no positive number")
        return None

    def problem(self, column, what):
        header = self.table.header
        before = self.cells[:header.index(column)] if column in header else []
        at = 1 + sum(len(cell.encode()) + 1 for cell in before)
        self.table.problems.add(self.table.path, self.line, at, f"{column}: {what}")


class Table:
    """A CSV file without quoted cells. A file that cannot be read, or that lacks one of `columns`,
    is a problem, and then the table has no rows."""

    def __init__(self, path, columns, problems):
        self.path = Path(path)
        self.problems = problems
        self.header = []
        self.rows = []
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            problems.add(path, 0, 0, f"cannot be read: {error}")
            return
        for number, line in enumerate(lines, 1):
            cells = line.removesuffix("\r").split(",")
            if cells == [""]:
                continue
            if not self.header:
                self.header = cells
            elif len(cells) != len(self.header):
                problems.add(path, number, 1, f"{len(cells)} cells, {len(self.header)} columns")
            else:
                self.rows.append(Row(self, number, cells))
        missing = [column for column in columns if column not in self.header]
        for column in missing:
            near = difflib.get_close_matches(column, self.header, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"columns: {', '.join(self.header)}"
            problems.add(path, 1, 1, f"no column '{column}'", hint)
        if missing:
            self.rows = []

    def __iter__(self):
        return iter(self.rows)


def measurements(name):
    """The folder of the published values of a study, with sources.csv."""
    return ROOT / "experiments" / "validation" / name / "measurements"


def write(folder, name, text):
    """Makes the folder and writes the file in it, whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / (name + ".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / name)


def run(main):
    """Calls the main function of a study and ends the program with what it returns; with status 2
    where input is wrong, after saying what."""
    try:
        sys.exit(main())
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
