"""What can go wrong: bad input is ConfigError; an expected no is a value (Infeasible)."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong in a file or an argument; line and column count from 1, 0: unknown."""

    file: str
    line: int
    column: int
    what: str
    hint: str

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}:{self.column}" if self.column else f":{self.line}"
        text = f"{place}: {self.what}" if place else self.what
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(ValueError):
    """Input that cannot be used. `problems` has everything that is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
