"""Text that a command is given, and what it is not given, is taken as it is: nothing is loaded to check it.

What newer versions of Typer check values with takes longer to import than most commands run. Numbers, paths and choices
are still checked.
"""

from __future__ import annotations

from typing import Any


def leave_unchecked(params: list[Any]) -> list[Any]:
    """Applies to these parameters of a command; returns them. Older versions of Typer are left alone."""
    for param in params:
        if getattr(param, "_runtime_param", _Lazy) is None and hasattr(param, "type_descriptor"):
            param._runtime_param = _Lazy()  # noqa: SLF001 - there is no public place for it
    return params


class _Lazy:
    """Stands for Typer's own until there is something to check."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        if value is None or (type(value) is str and param.type_descriptor.annotation is str):
            return value
        param._runtime_param = None  # noqa: SLF001 - so it makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
