"""Orrery: plans for training large models on mixed GPUs, simulated and replayed.

    import orrery
    at = orrery.Training("hexiscale_case_study", "llama2_13b", global_batch=24,
                         sequence_length=4096)
    print(at.simulate("plan.yaml").iteration_time)

Quantities are floats in base units (seconds, bytes, bytes/s, FLOP, FLOP/s, dollars), points in time
and exact durations ints in nanoseconds, ids ints (-1: none), enums strings."""

from . import _orrery
from ._orrery import *  # noqa: F401,F403  (the records)
from ._orrery import Topology
from .errors import ConfigError, Problem
from .record import Record, to_frame
from .training import Training
from .values import (cluster, dumps, job, model, plan, profile, program, run_log, save, shape,
                     trace)

__version__ = _orrery.version
