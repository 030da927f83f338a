"""Loading, building and writing the values that Orrery works on."""

from __future__ import annotations

import os
from typing import Any, Sequence, Union

from . import _orrery
from ._orrery import Cluster, Job, ModelShape, Plan, Profile, Program, RunLog, Trace, Workload

PathLike = Union[str, "os.PathLike[str]"]


def load_cluster(what: Any) -> Cluster:
    """A cluster: the name of one in the library ("hexiscale_240"), a path to a YAML file, a dict
    with the keys of such a file (`orrery schema cluster`), or a Cluster itself. In a dict a plain
    number counts in base units: B/s, seconds, bytes."""
    if isinstance(what, Cluster):
        return what
    return _orrery.cluster_from(what) if isinstance(what, dict) else _orrery.load_cluster(os.fspath(what))


def load_job(what: Any = None, **settings: Any) -> Job:
    """A job: a path to a YAML file, a dict with the keys of such a file, a Job itself, or nothing.
    Settings go on top: load_job(global_batch=512, sequence_length=4096, allowed={"zero_stages": [1]})."""
    if what is None or isinstance(what, dict):
        below = what or {}
        return _orrery.job_from({**below, **{name: _on_top(below.get(name), setting)
                                             for name, setting in settings.items()}})
    value = what if isinstance(what, Job) else _orrery.load_job(os.fspath(what))
    if not settings:
        return value
    import copy

    value = copy.deepcopy(value)
    for name, setting in settings.items():
        old = getattr(value, name)
        if isinstance(setting, dict) and hasattr(old, "replace"):
            setting = old.replace(**setting)
        setattr(value, name, setting)
    return value


def _on_top(below: Any, setting: Any) -> Any:
    """A map changes the keys that it has."""
    both = isinstance(below, dict) and isinstance(setting, dict)
    return {**below, **setting} if both else setting


def load_model(what: Any, job: Job) -> Workload:
    """A model at a job's sequence length and dtype: the name of one in the library ("llama_30b"), a
    path to a model YAML or a Hugging Face config.json, a ModelShape, or a Workload itself."""
    if isinstance(what, Workload):
        return what
    if isinstance(what, ModelShape):
        return _orrery.build_workload(what, job)
    return _orrery.load_workload(os.fspath(what), job)


def load_shape(name: PathLike) -> ModelShape:
    """The dimensions of a model of the library, or of a file."""
    return _orrery.load_model(os.fspath(name))


def load_plan(what: Any) -> Plan:
    """A plan: a path to a YAML file, a dict with the keys of such a file, or a Plan itself."""
    if isinstance(what, Plan):
        return what
    return _orrery.plan_from(what) if isinstance(what, dict) else _orrery.load_plan(os.fspath(what))


def load_profile(what: Any = None) -> Profile:
    """A profile: the name of one in the library ("today"), a path to a YAML file, a dict with the
    keys of such a file, a Profile itself, or nothing: an empty one."""
    if what is None:
        return Profile()
    if isinstance(what, Profile):
        return what
    return _orrery.profile_from(what) if isinstance(what, dict) else _orrery.load_profile(os.fspath(what))


def load_trace(what: Any) -> Trace:
    """A trace: a path to a CSV file, or a Trace itself."""
    return what if isinstance(what, Trace) else _orrery.load_trace(os.fspath(what))


def generate_trace(generator: str, cluster: Cluster, *, days: float, seed: int = 0,
                   changes: Sequence[str] = ()) -> Trace:
    """A trace drawn for a cluster: `generator` is one of the library ("llama3", "spot") or a path;
    `changes` are "key.path=value"."""
    return _orrery.generate_trace(generator, cluster, days, seed, list(changes))


def load_program(path: PathLike) -> Program:
    """A program that save() or `orrery simulate --program` wrote."""
    with open(path, "rb") as file:
        return _orrery.parse_program(file.read())


def load_run_log(path: PathLike) -> RunLog:
    """A run log that save(), the simulator or the executor wrote."""
    with open(path, "rb") as file:
        return _orrery.parse_run_log(file.read())


_TEXT = {
    Cluster: _orrery.cluster_yaml,
    Job: _orrery.job_yaml,
    Plan: _orrery.plan_yaml,
    Profile: _orrery.profile_yaml,
    Trace: _orrery.trace_text,
}
_BYTES = {Program: _orrery.program_bytes, RunLog: _orrery.run_log_bytes}


def dumps(value: Any) -> str:
    """The text of a Cluster, Job, Plan, Profile (YAML) or Trace (CSV), as the functions above and
    the command line read it."""
    if type(value) not in _TEXT:
        raise TypeError("a Cluster, Job, Plan, Profile or Trace can be written, not "
                        + type(value).__name__)
    return _TEXT[type(value)](value)


def save(value: Any, path: PathLike) -> None:
    """Writes what dumps() gives, or a Program or RunLog as protobuf."""
    # First all of it: a value that cannot be written leaves a file as it was.
    data = _BYTES[type(value)](value) if type(value) in _BYTES else dumps(value).encode()
    with open(path, "wb") as file:
        file.write(data)
