#!/usr/bin/python3
"""Printed strategies of DeepSpeed and Megatron (Table 4) against those that their planners choose.
Draws the plans of runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import strategies  # noqa: E402


def main():
    arguments = strategies.style.arguments()
    found = strategies.read(arguments)
    strategies.draw_degrees(arguments, found, "table_4")
    strategies.compare_degrees(arguments, found)


if __name__ == "__main__":
    main()
