"""What all records (Plan, Cluster, Program, ...) have in common; the classes are made when the
module is loaded, one for each struct of C++."""

from __future__ import annotations

from typing import Any, Callable, Iterable

_SHOWN = 8  # items of a list in repr()


class Record:
    """A value with named fields. Lists and records inside it change in place; nothing is shared
    between two records unless you put it into both. Equal when all fields are equal."""

    __slots__ = ("_value",)
    _fields: tuple[str, ...] = ()

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name not in self._fields:
                raise TypeError(f"{type(self).__name__} has no field '{name}'" + _near(name, self))
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        default = type(self)()
        shown = []
        for name in self._fields:
            value = getattr(self, name)
            if value != getattr(default, name):
                shown.append(f"{name}={_text(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in self._fields})

    def __copy__(self) -> Any:
        return _rebuild(type(self), {name: getattr(self, name) for name in self._fields})

    def replace(self, **values: Any) -> Any:
        """A copy with other values of some fields; lists and records in it are shared."""
        copy = self.__copy__()
        type(self).__init__(copy, **values)
        return copy

    def to_dict(self) -> dict[str, Any]:
        """All fields, records inside as dicts too."""
        return {name: _plain(getattr(self, name)) for name in self._fields}

    def to_frame(self) -> Any:
        """A pandas.DataFrame of one row; fields of records inside are `outer.inner`."""
        return to_frame([self])


def make_class(name: str, doc: str, fields: list[str], read: Callable[[Any, str], Any],
               types: Callable[[], dict[str, str]]) -> type:
    """The class of one struct. `read` gives a field that the object does not have yet."""
    return type(name, (Record,), {
        "__slots__": tuple(fields),
        "__doc__": doc,
        "__module__": "orrery",
        "__getattr__": lambda self, field: read(self, field),
        "_fields": tuple(fields),
        "_types": staticmethod(types),
    })


def to_frame(records: Iterable[Any]) -> Any:
    """A pandas.DataFrame with a row for each record; fields of records inside are `outer.inner`.
    Needs pandas (python3-pandas)."""
    return frame_of([record.to_dict() for record in records])


def frame_of(rows: list[dict[str, Any]]) -> Any:
    """The same of dicts."""
    try:
        import pandas  # type: ignore[import]
    except ImportError as error:
        raise ImportError("to_frame() needs pandas: apt-get install python3-pandas") from error
    return pandas.DataFrame([_flat(row) for row in rows])


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            row.update(_flat(value, f"{prefix}{name}."))
        else:
            row[prefix + name] = value
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _rebuild(cls: type, values: dict[str, Any]) -> Any:
    return cls(**values)


def _text(value: Any) -> str:
    if isinstance(value, list) and len(value) > _SHOWN:
        first = ", ".join(_text(item) for item in value[:_SHOWN])
        return f"[{first}, ... {len(value)} items]"
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    return repr(value)


def _near(name: str, record: Record) -> str:
    import difflib

    near = difflib.get_close_matches(name, record._fields, 1)
    return f" (did you mean '{near[0]}'?)" if near else f" (fields: {', '.join(record._fields)})"
