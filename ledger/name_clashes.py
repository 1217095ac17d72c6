"""The other two packages: a module of their name that lies before them is found in their place, and is named here."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

_NAMES: Final = ("stream", "projector")


def check_names() -> None:
    """Raises `ImportError` where another `stream` or `projector` is found, as one of the user's own beside his program."""
    home = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - as the finder writes it, whatever its links
    for name in _NAMES:
        try:
            spec = find_spec(name)
        except ValueError:  # what is imported by that name does not say where it came from
            spec = None
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if os.path.join(home, name) not in places:  # noqa: PTH118 - the same
            other = spec.origin or ", ".join(places) if spec is not None else "something that was imported by this name"
            raise ImportError(
                f"tailfold is made of the packages stream, projector and ledger, and {other} stands in the place of"
                f" {name}: rename it, or take its folder from the path",
                name=name,
            )
