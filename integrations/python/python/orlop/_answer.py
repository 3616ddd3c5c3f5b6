"""The base of all answers: dataclasses that are made of JSON, and become tables."""

from __future__ import annotations

import copy
import dataclasses
import html
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")


def at(path: str) -> Any:
    """Returns a field whose value is at this path of the JSON object, such as ``"peak.held"``."""
    return field(metadata={"path": path})


def from_json(kind: type[T], value: Any) -> T:
    """Makes a dataclass of a JSON object. Names that it does not have are in :meth:`Answer.to_dict`."""
    made: T = _convert(kind, value)
    if isinstance(made, Answer):
        object.__setattr__(made, "_json", value)
    return made


def _convert(kind: Any, value: Any) -> Any:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return None if value is None else _convert(arguments[0], value)
    if typing.get_origin(kind) is tuple:
        return tuple(_convert(arguments[0], item) for item in value)
    if not dataclasses.is_dataclass(kind):
        return value
    hints = typing.get_type_hints(kind)
    values = {
        each.name: _convert(hints[each.name], _lookup(value, each.metadata.get("path", each.name)))
        for each in dataclasses.fields(kind)
    }
    return kind(**values)  # type: ignore[operator]


def _lookup(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[name]
    return value


class Answer:
    """The base of all answers."""

    _json: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole answer as JSON has it: more than the fields of this class."""
        return copy.deepcopy(self._json)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>\n{self}"


def frame(rows: list[dict[str, Any]], kind: type, drop: str = "") -> pandas.DataFrame:
    """Makes a table whose columns are the device and the fields of a class, without one."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from error
    fields = [each.name for each in dataclasses.fields(kind) if each.name not in ("device", drop)]
    return pandas.DataFrame(rows, columns=["device", *fields])


def row(device: int | str | None, value: Any) -> dict[str, Any]:
    return {"device": device} | {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


@dataclass(frozen=True)
class Verdict:
    """Three sentences."""

    finding: str
    """What happened, or what is lost."""
    remedy: str
    """The setting to use, with its gain and its price; or why there is none."""
    next: str
    """What to do next."""

    def __str__(self) -> str:
        return f"{self.finding}\n{self.remedy}\n{self.next}"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in str(self).splitlines())


class JudgedAnswer(Answer):
    """An answer with verdicts, of which the first is the most urgent."""

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns all verdicts."""
        raise NotImplementedError

    @property
    def verdict(self) -> Verdict:
        """The first verdict."""
        return self.verdicts()[0]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.verdicts()))

    def _repr_html_(self) -> str:
        return "<hr>".join(verdict._repr_html_() for verdict in self.verdicts())
