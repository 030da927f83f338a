"""The commands of the command line as functions; made from the same descriptions of their settings
and results when the package is loaded."""

from __future__ import annotations

import inspect
import json
import logging
import os
import tempfile
import textwrap
from typing import Any, Callable

from . import _orrery, helper, results, values
from .errors import ConfigError, Problem
from .record import Record
from .results import Result, annotation, word

log = logging.getLogger("orrery")


def _wrap(value: Any, kind: dict[str, Any]) -> Any:
    """JSON as objects, by the description of its type."""
    if value is None:
        return None
    if kind["kind"] == "maybe":
        return _wrap(value, kind["element"])
    if kind["kind"] == "list":
        return [_wrap(item, kind["element"]) for item in value]
    if kind["kind"] == "dictionary":
        return {name: _wrap(item, kind["element"]) for name, item in value.items()}
    if kind["kind"] == "structure" and isinstance(value, dict):
        if kind["schema"] == "orrery/plan/1":
            return values.load_plan(value)
        types = {field["key"]: field["type"] for field in kind["fields"]}
        made = results.class_of(kind)()
        made.__dict__.update({word(name): _wrap(item, types[name])
                              for name, item in value.items() if name in types})
        return made
    return value


def default(field: dict[str, Any]) -> Any:
    """The default of a setting as Python writes it."""
    value, kind = field["default"], field["type"]
    if value is None:
        return None
    what = kind["kind"]
    if what == "integer":
        return int(float(value))
    if what == "number":
        return float(value)
    if what == "boolean":
        return value == "true"
    return value


def _given(name: str, value: Any, field: dict[str, Any], folder: list[Any]) -> Any:
    """A keyword argument as the settings want it."""
    if isinstance(value, str) and field["type"]["kind"] in ("list", "any") and field["commas"]:
        return value.split(",")
    if isinstance(value, str) and field["type"]["kind"] == "list":
        return [value]
    return _filed(name, value, folder)


def _filed(name: str, value: Any, folder: list[Any]) -> Any:
    """A Plan, Cluster, ... as the path of a file with it."""
    if isinstance(value, Record):
        if not folder:
            folder.append(tempfile.TemporaryDirectory(prefix="orrery-"))
        end = ".csv" if type(value).__name__ == "Trace" else ".yaml"
        path = os.path.join(folder[0].name, f"{name}-{len(os.listdir(folder[0].name))}{end}")
        values.save(value, path)
        return path
    if isinstance(value, (list, tuple)):
        return [_filed(name, item, folder) for item in value]
    return value


def _doc(command: dict[str, Any]) -> str:
    lines = [command["summary"] + ".", ""]
    lines += textwrap.wrap("Settings are keyword arguments; those that are not given have their "
                           "defaults. Numbers with units may be strings (\"400 Gbps\") or floats in "
                           "base units. A Cluster, Plan, Job, Profile or Trace may be given in place "
                           "of its file. `progress` is called with a dict (done, total, "
                           "remaining_seconds, ...) while it runs. Ctrl-C ends it as it ends the "
                           "command.", 88)
    if command["notes"]:
        lines += ["", *textwrap.wrap(command["notes"], 88)]
    section = None
    for field in command["settings"]:
        if field["section"] != section or section is None:
            section = field["section"]
            lines += ["", f"{section or 'Settings'}:"]
        lines.append(f"  {word(field['key'])}: {annotation(field['type'], True)}"
                     + ("" if field["required"] or field["default"] in (None, "", [], {})
                        else f" = {default(field)!r}"))
        unit = field["type"].get("units")
        text = field["doc"] + (f" [{unit}]" if unit else "")
        lines += textwrap.wrap(text, 84, initial_indent="      ", subsequent_indent="      ")
    if command["result"]:
        lines += ["", "Result:"]
        for field in command["result"]["fields"]:
            lines.append(f"  {word(field['key'])}: {annotation(field['type'], False)}")
            lines += textwrap.wrap(field["doc"], 84, initial_indent="      ",
                                   subsequent_indent="      ")
    return "\n".join(lines)


def _make(command: dict[str, Any]) -> Callable[..., Result]:
    settings = {word(field["key"]): field for field in command["settings"]}
    name = word(command["name"])
    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY,
                          default=inspect.Parameter.empty if field["required"] else default(field),
                          annotation=annotation(field["type"], True))
        for key, field in settings.items()]
    parameters.append(inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=None,
                                        annotation="Callable[[dict[str, Any]], Any] | None"))

    result = "Result"
    if command["result"]:
        result = "results." + results.class_of(command["result"], name).__name__

    def function(*, progress: Callable[[dict[str, Any]], Any] | None = None,
                 **given: Any) -> Result:
        for key in given:
            if key not in settings:
                import difflib

                near = difflib.get_close_matches(key, settings, 1)
                raise TypeError(f"orrery.{name}() has no setting '{key}'"
                                + (f" (did you mean '{near[0]}'?)" if near else ""))
        folder: list[Any] = []
        notes: list[str] = []

        def note(text: str) -> None:
            notes.append(text)
            log.warning("%s", text)

        parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        try:
            for key, value in given.items():
                field = settings[key]
                if value is not None:
                    parts[field["of_view"]][field["key"]] = _given(key, value, field, folder)
            status, text, result = _orrery.run_command(helper.session(), command["name"], *parts,
                                                       progress, note)
        except ConfigError as error:
            raise ConfigError([_renamed(problem) for problem in error.problems]) from None
        finally:
            for each in folder:
                each.cleanup()
        made = Result()
        if result:
            tree = json.loads(result)
            made = _wrap({"value": tree} if command["bare"] else tree, command["result"])
        made.__dict__.update(_text=text, status=status, notes=notes)
        return made

    function.__name__ = function.__qualname__ = name
    function.__module__ = "orrery"
    function.__doc__ = _doc(command)
    function.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
    return function


def _renamed(problem: Problem) -> Problem:
    """A problem of a flag is one of a keyword argument."""
    if not problem.file.startswith("--"):
        return problem
    return problem._replace(file=word(problem.file[2:]))


def _whole(command: dict[str, Any]) -> dict[str, Any]:
    """A result that is a list or a text as a field of one."""
    kind = command["result"]
    command["bare"] = kind is not None and kind["kind"] != "structure"
    if command["bare"]:
        field = {"key": "value", "doc": "the whole", "required": True, "default": None,
                 "type": kind}
        command["result"] = {"kind": "structure", "name": "", "doc": "", "schema": "",
                             "fields": [field]}
    return command


commands: list[dict[str, Any]] = [_whole(command) for command in _orrery.commands()]
functions: dict[str, Callable[..., Result]] = {
    word(command["name"]): _make(command) for command in commands}
