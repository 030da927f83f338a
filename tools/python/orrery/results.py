"""What commands give back: a class for each kind of result, made from its description."""

from __future__ import annotations

import keyword
import re
from typing import Any

_BASE = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "any": "Any"}


class Result:
    """What a command came to, or a part of it: attributes named as in its JSON output. Quantities
    are in base units. Of the result of a command, `str()` is what the command line prints, `status`
    its exit status, `notes` what it had to say besides."""

    status: int
    notes: list[str]
    _fields: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._fields:  # A result of another version may lack it.
            return None
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'"
                             + (f" (it has {', '.join(self._fields)})" if self._fields else ""))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({fields})"

    def __str__(self) -> str:
        return self.__dict__.get("_text") or repr(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self._fields)

    def to_dict(self) -> dict[str, Any]:
        """All fields, results and records inside as dicts too."""
        return {name: _plain(getattr(self, name)) for name in self._fields}

    def to_frame(self) -> Any:
        """A pandas.DataFrame of its first list of results, a row for each; of one row where it has
        no such list."""
        from .record import frame_of

        for name in self._fields:
            value = getattr(self, name)
            if isinstance(value, list) and value and isinstance(value[0], Result):
                return frame_of([item.to_dict() for item in value])
        return frame_of([self.to_dict()])


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def word(name: str) -> str:
    """A key of a description as a name in Python."""
    name = name.replace(" ", "_").replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def annotation(kind: dict[str, Any], given: bool) -> str:
    """The type of a setting that is given, or of a result, as Python writes it."""
    what = kind["kind"]
    if what == "maybe":
        inner = annotation(kind["element"], given)
        return inner if inner == "Any" else inner + " | None"
    if what == "list":
        item = annotation(kind["element"], given)
        return f"Sequence[{item}] | str" if given else f"list[{item}]"
    if what == "dictionary":
        item = annotation(kind["element"], given)
        return f"Mapping[str, {item}]" if given else f"dict[str, {item}]"
    if what == "quantity":
        return "float | str" if given else "float"
    if what == "string":
        return "str | PathLike[str] | Record" if given else "str"
    if what == "enumeration":
        return "Literal[" + ", ".join(f'"{name}"' for name in kind["names"]) + "]"
    if what == "structure":
        if given:
            return "str | Mapping[str, Any]"
        return "Plan" if kind["schema"] == "orrery/plan/1" else class_of(kind).__name__
    return _BASE[what]


#: By name.
classes: dict[str, type] = {}


def class_of(kind: dict[str, Any], command: str = "") -> type:
    """The class of a described struct; of the result of a command if its name is given."""
    fields = tuple(word(field["key"]) for field in kind["fields"])
    title = "".join(part[:1].upper() + part[1:] for part in
                    re.split(r"\W+|_", command + " result" if command else kind["name"]))
    name, number = title, 2
    while name in classes and classes[name]._fields != fields:  # type: ignore[attr-defined]
        name, number = f"{title}{number}", number + 1
    if name not in classes:
        made = type(name, (Result,), {
            "__doc__": kind["doc"] or f"{title}: see the fields.", "__module__": __name__,
            "_fields": fields, "_kind": kind})
        classes[name] = made
        globals()[name] = made
    return classes[name]
