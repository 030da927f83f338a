"""Calls of a function side by side. What takes long in them is the simulator, which runs in
processes of its own: threads are enough."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor


def each(function, items, jobs=None, label=""):
    """[function(item) for item in items], `jobs` at a time (None: one for each core). `label` is
    what a terminal shows of the progress."""
    items = list(items)
    results = []
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for result in pool.map(function, items):
            results.append(result)
            if label and sys.stderr.isatty():
                end = "\n" if len(results) == len(items) else "   "
                print(f"\r{label}: {len(results)} of {len(items)}{end}", end="", file=sys.stderr)
    return results
