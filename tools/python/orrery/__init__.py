"""Orrery: plans for training large models on mixed GPUs, simulated and replayed.

    import orrery
    at = orrery.Training("hexiscale_case_study", "llama2_13b", global_batch=24,
                         sequence_length=4096)
    print(at.simulate("plan.yaml").iteration_time)

Quantities are floats in base units (seconds, bytes, bytes/s, FLOP, FLOP/s, dollars), points in time
and exact durations ints in nanoseconds, ids ints (-1: none), enums strings."""

from typing import Any

from . import _orrery
from ._orrery import *  # noqa: F401,F403  (the records)
from .errors import ConfigError, Problem
from .parts import (BUCKETS, all_state_bytes, bind_trace, combine_traces, confidence, count_layers,
                    expected_ettr, find_defect, global_batch, import_trace, library, model_flops,
                    parameters, peak_memory, plan_devices, plan_hash, plan_words, program_hash,
                    replica_survival, segment_of_layers, sort_events, stage_devices,
                    unexpected_interruptions, weight_bytes, working_devices, young_interval)
from .plugins import Planner, PlannerInput, PolicyInput, RecoveryPolicy
from .record import Record, to_frame
from .results import Result
from .topology import Topology
from .training import Training
from .values import (dumps, generate_trace, load_cluster, load_job, load_model, load_plan,
                     load_profile, load_program, load_run_log, load_shape, load_trace, save)

MemoryVerdict.fits = property(  # type: ignore[name-defined]
    lambda verdict: _orrery.memory_fits(verdict), doc="Whether all devices have enough.")
MemoryVerdict.__str__ = lambda verdict: _orrery.memory_words(verdict)  # type: ignore[name-defined]


def planners() -> list[dict]:
    """The catalog of planners: name, source, searches, ignores, options."""
    return _orrery.planners()


def policies() -> list[dict]:
    """The catalog of recovery policies: name, source, recovers, needs, options."""
    return _orrery.policies()


for _name in ("commands", "main", "replay", "run_command", "search", "search_for", "serve"):
    globals().pop(_name)  # Of the module alone; plan(), replay(), ... are commands.


def __getattr__(name: str) -> Any:
    """Commands as functions: plan(), simulate(), replay(), ...; made when the first is asked for."""
    import importlib

    commands = importlib.import_module(".commands", __name__)
    if name == "commands":
        return commands
    try:
        return commands.functions[name]
    except KeyError:
        raise AttributeError(f"module 'orrery' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    from . import commands

    return sorted({*globals(), *commands.functions})


__version__ = _orrery.version
