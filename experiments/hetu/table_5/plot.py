#!/usr/bin/python3
"""Hetu's printed strategies of Table 5 against those that the planner chooses. Draws the plans of
runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import strategies  # noqa: E402


def main():
    arguments = strategies.style.arguments()
    found = strategies.read(arguments)
    strategies.draw_all(arguments, found, 2, "table_5")
    strategies.compare(arguments, found, "at its degrees")


if __name__ == "__main__":
    main()
