#!/usr/bin/python3
"""Predicted against measured; drawn as ../a100/plot.py says."""

import os
import runpy

runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "a100", "plot.py"),
               run_name="__main__")
