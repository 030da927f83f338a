"""Planners and recovery policies in Python: subclass Planner or RecoveryPolicy in a file of your own
and give it to Training.plan(), Training.replay(), or `orrery plan --planner my.py:MyPlanner`."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import typing
from typing import Any, Union

from . import _orrery
from ._orrery import (CheckpointLevel, ClusterEvent, Evaluation, Infeasible, JobState, OptionInfo,
                      Plan, PlannerResult, RecoveryDecision, Runtime)
from .training import Training


class PlannerInput(Training):
    """What a planner is given: what is trained on what, and

    devices      ids that may be used, ascending
    seed         of random numbers
    work_budget  most work, in the planner's own unit; 0: the planner's own end"""

    def __init__(self, context: Any, questions: Any, devices: list[int], seed: int,
                 work_budget: int) -> None:
        self._take(context)
        self._questions = questions
        self.devices = devices
        self.seed = seed
        self.work_budget = work_budget

    @property
    def canceled(self) -> bool:
        """True once the user has asked the search to end: return the best plan so far."""
        return self._questions.canceled

    def evaluate(self, plan: Any) -> Evaluation:
        """What the judge (the simulator, or a closed form) says of a plan."""
        return self._questions.evaluate(plan, self._context)


class PolicyInput(Training):
    """What a recovery policy is given: what is trained on what, and

    interruptions_per_second  that a user would expect; 0: unknown
    first                     plan that the user gives to begin with, or None
    seed                      of random numbers
    runtime                   what it takes to notice a loss, to start, to connect, to search"""

    def __init__(self, context: Any, questions: Any, interruptions_per_second: float,
                 first: Plan | None, seed: int, runtime: Runtime) -> None:
        self._take(context)
        self._questions = questions
        self.interruptions_per_second = interruptions_per_second
        self.first = first
        self.seed = seed
        self.runtime = runtime

    def evaluate(self, plan: Any) -> Evaluation:
        """What the judge says of a plan on healthy devices; it remembers."""
        return self._questions.evaluate(plan, self._context)

    def find_plan(self, planner: Any, devices: list[int], **options: Any) -> Any:
        """The Plan that a planner (a name or a Planner) makes for these devices, or Infeasible. Its
        questions go to this policy's judge."""
        if not devices:
            return Infeasible(constraint="devices", witness="none is there")
        return _orrery.search_for(self._context, _known(planner), _texts(options), self._questions,
                                  devices, self.seed).outcome


class _Settings:
    """Annotated class attributes are settings: `rounds: Annotated[int, "without progress"] = 3`."""

    def __init__(self, **settings: Any) -> None:
        known = settings_of(type(self))
        for name, value in settings.items():
            if name not in known:
                raise _bad(name, f"{type(self).__name__} has no such setting", known)
            setattr(self, name, _converted(name, value, known[name]))


class Planner(_Settings):
    """Makes plans. Define plan(); settings are annotated class attributes."""

    def plan(self, input: PlannerInput) -> Union[Plan, Infeasible, PlannerResult]:
        """A Plan that is valid and fits in memory, or Infeasible; as a PlannerResult where the
        search has something to report."""
        raise NotImplementedError


class RecoveryPolicy(_Settings):
    """Answers events. Define the three methods; `self.input` is what the policy is given."""

    def __init__(self, input: PolicyInput, **settings: Any) -> None:
        super().__init__(**settings)
        self.input = input

    def first_plan(self, live: list[int]) -> Union[Plan, Infeasible]:
        """The plan to begin with on these devices, or why there is none: then the job waits."""
        raise NotImplementedError

    def checkpoints(self, plan: Plan, iteration_time: float) -> list[CheckpointLevel]:
        """Levels of checkpoints while `plan` runs; empty: none."""
        return []

    def on_events(self, state: JobState, events: list[ClusterEvent]) -> RecoveryDecision:
        """What to do. The events happened at one instant and are already in `state`."""
        raise NotImplementedError


def settings_of(kind: type) -> dict[str, tuple[type, str]]:
    """The settings of a planner's or policy's class: name to type and explanation."""
    found: dict[str, tuple[type, str]] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if name.startswith("_") or not hasattr(kind, name):
            continue
        doc = next((text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str)), "")
        found[name] = (typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint, doc)
    return found


def options_of(kind: type) -> list[OptionInfo]:
    """The same as the catalog of planners has them."""
    return [OptionInfo(name=name, default_value=_text(getattr(kind, name)), doc=doc)
            for name, (_, doc) in settings_of(kind).items()]


def load(name: str, base: type) -> type:
    """The class that "file.py:Name" means; `base`: Planner or RecoveryPolicy."""
    path, _, wanted = name.rpartition(":")
    place = os.path.abspath(path)
    if not os.path.isfile(place):
        raise _problem(name, f"no such file '{path}'", "FILE.py:CLASS")
    module_name = "orrery_plugin_" + place.replace("/", "_").replace(".", "_")
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, place)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    kind = getattr(module, wanted, None)
    if not (inspect.isclass(kind) and issubclass(kind, base)):
        classes = [each for each, value in vars(module).items()
                   if inspect.isclass(value) and issubclass(value, base) and value is not base]
        raise _problem(name, f"'{path}' has no {base.__name__} '{wanted}'",
                       "it has: " + ", ".join(classes) if classes else "")
    return kind


def _known(planner: Any) -> Any:
    if isinstance(planner, str) and ".py:" in planner:
        planner = load(planner, Planner)
    return planner() if inspect.isclass(planner) else planner


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in options.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _converted(name: str, value: Any, known: tuple[type, str]) -> Any:
    kind = known[0]
    if not isinstance(value, str) or kind is str:
        return value
    try:
        if kind is bool:
            return {"true": True, "yes": True, "false": False, "no": False}[value]
        return kind(value)
    except (KeyError, ValueError):
        raise _problem(f"options.{name}", f"'{value}' is no {kind.__name__}", known[1]) from None


def _bad(name: str, what: str, known: dict[str, Any]) -> Exception:
    return _problem(f"options.{name}", what, "settings: " + ", ".join(known) if known else "")


def _problem(place: str, what: str, hint: str) -> Exception:
    from .errors import ConfigError, Problem

    return ConfigError([Problem(place, 0, 0, what, hint)])


def summary_of(kind: type) -> str:
    """The first line of a class's docstring."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def problems_of(kind: type, settings: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What is wrong with settings: name, what, hint."""
    from .errors import ConfigError

    known, found = settings_of(kind), []
    for name, value in settings.items():
        try:
            if name not in known:
                raise _bad(name, f"{kind.__name__} has no such setting", known)
            _converted(name, value, known[name])
        except ConfigError as error:
            found += [(name, problem.what, problem.hint) for problem in error.problems]
    return found
