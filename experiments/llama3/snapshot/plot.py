#!/usr/bin/python3
"""For each case: GPU-hours by bucket, ETTR, goodput and dollars of each policy, tokens over time, and
what each place owes to.
Draws runs.csv and the points.csv of its runs; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import replay_figure  # noqa: E402

if __name__ == "__main__":
    replay_figure.draw_cases()
