"""Writes the type stubs of the package from the descriptions that it is made from:

    tools/orrery python -m orrery.stubs tools/python/orrery"""

from __future__ import annotations

import ast
import inspect
import pathlib
import sys
from typing import Any, Iterator

from . import _orrery, commands, results
from .record import Record

_HEAD = '"""Generated: tools/orrery python -m orrery.stubs tools/python/orrery"""\n'


def records() -> dict[str, Any]:
    """The classes of records, by name."""
    return {name: kind for name, kind in sorted(vars(_orrery).items())
            if isinstance(kind, type) and issubclass(kind, Record)}


def _wrapped(text: str, indent: str, width: int = 99) -> Iterator[str]:
    """One statement over several lines, broken behind commas."""
    line = ""
    for part in text.split(", "):
        piece = part if not line else ", " + part
        if line and len(line) + len(piece) > width:
            yield line + ","
            line = indent + part
        else:
            line += piece
    yield line


def module_stub() -> str:
    """Stub of the C++ module: its records."""
    lines = [_HEAD, "from typing import Any, Literal\n", "from .record import Record\n"]
    for name, kind in records().items():
        types = kind._types()
        lines += ["", f"class {name}(Record):", f'    """{kind.__doc__}"""\n']
        lines += [f"    {field}: {types[field]}" for field in kind._fields]
        if name == "MemoryVerdict":
            lines += ["    @property", "    def fits(self) -> bool: ..."]
        arguments = ", ".join(f"{field}: {types[field]} = ..." for field in kind._fields)
        lines += _wrapped(f"    def __init__(self, *, {arguments}) -> None: ...", " " * 17)
    lines += ["", "def __getattr__(name: str) -> Any: ...  # functions: the package wraps them"]
    return "\n".join(lines) + "\n"


def results_stub() -> str:
    """Stub of the results of commands."""
    for command in commands.commands:
        if command["result"]:
            for field in command["result"]["fields"]:
                _touch(field["type"])
    lines = [_HEAD, "from typing import Any, Literal\n", "from ._orrery import Plan\n", "",
             "class Result:", "    status: Any", "    notes: list[str]",
             "    def to_dict(self) -> dict[str, Any]: ...",
             "    def to_frame(self) -> Any: ..."]
    for name, kind in sorted(results.classes.items()):
        described = kind._kind  # type: ignore[attr-defined]
        lines += ["", f"class {name}(Result):"]
        for field in described["fields"]:
            lines.append(f"    {results.word(field['key'])}: "
                         f"{results.annotation(field['type'], False)}")
        if not described["fields"]:
            lines.append("    pass")
    lines += ["", "def word(name: str) -> str: ...",
              "def annotation(kind: dict[str, Any], given: bool) -> str: ...",
              'def class_of(kind: dict[str, Any], command: str = "") -> type[Result]: ...',
              "classes: dict[str, type[Result]]"]
    return "\n".join(lines) + "\n"


def _touch(kind: dict[str, Any]) -> None:
    """Makes the classes of a described type and of all that it has."""
    if "element" in kind:
        _touch(kind["element"])
    if kind["kind"] == "structure" and kind["schema"] != "orrery/plan/1":
        results.class_of(kind)
        for field in kind["fields"]:
            _touch(field["type"])


def package_stub() -> str:
    """Stub of the package: what it takes from its modules, and the commands."""
    package = pathlib.Path(__file__).with_name("__init__.py").read_text(encoding="utf-8")
    lines = [_HEAD, "from os import PathLike",
             "from typing import Any, Callable, Dict, List, Literal, Mapping, Sequence\n"]
    for node in ast.parse(package).body:
        if (isinstance(node, ast.ImportFrom) and node.level
                    and node.module not in (None, "_orrery", "results")):
            lines += _import(str(node.module), [alias.name for alias in node.names])
    lines += _import("_orrery", list(records()))
    lines += ["from .results import Result as Result", "from . import results as results"]
    lines += ["", "__version__: str", "def planners() -> List[Dict[str, Any]]: ...",
              "def policies() -> List[Dict[str, Any]]: ..."]  # `list` is a command
    for name, function in commands.functions.items():
        signature = inspect.signature(function)
        arguments = ", ".join(f"{each.name}: {each.annotation}"
                              + ("" if each.default is each.empty else " = ...")
                              for each in signature.parameters.values())
        lines += ["", *_wrapped(f"def {name}(*, {arguments}) -> {signature.return_annotation}:",
                                " " * (len(name) + 5)),
                  f'    """{(function.__doc__ or "").partition(chr(10))[0]}"""',
                  "    ..."]
    return "\n".join(lines) + "\n"


def _import(module: str, names: list[str]) -> Iterator[str]:
    """Names that the package hands on, as a stub says it."""
    return _wrapped(f"from .{module} import ({', '.join(f'{name} as {name}' for name in names)})",
                    "    ")


def all_stubs() -> dict[str, str]:
    """By file name."""
    text = {"results.pyi": results_stub(), "_orrery.pyi": module_stub()}
    text["__init__.pyi"] = package_stub()
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m orrery.stubs FOLDER")
    for file, content in all_stubs().items():
        (pathlib.Path(sys.argv[1]) / file).write_text(content, encoding="utf-8")
