#!/usr/bin/python3
"""Predicted over measured against GPUs; drawn as ../today/plot.py says."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).resolve().parents[1] / "today" / "plot.py"), run_name="__main__")
