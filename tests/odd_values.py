"""Values that a public call must refuse, by what it takes."""

from __future__ import annotations

from typing import Any, Final, cast

from ledger import File
from projector import Block
from stream import Event, NewEvent

NAN: Final = float("nan")
NO_TEXT: Final[list[Any]] = [5, 1.5, NAN, True, b"x", ["x"], {"x": 1}, object()]
NO_NAME: Final = [*NO_TEXT, "\ud800"]
NO_ID: Final = [*NO_NAME, "", "a\0b", "x" * 257]
NO_NUMBER: Final[list[Any]] = [-1, 1.5, NAN, float("inf"), True, "1", b"1", [1], 2**63, 10**5000, object()]
NO_FLAG: Final[list[Any]] = [None, 0, 1, "no", b"", [], NAN]
NO_LIST: Final[list[Any]] = [5, True, "abc", b"abc", {"x"}, {"x": 1}, (x for x in "x"), object()]
NO_JSON: Final[list[Any]] = [NAN, float("inf"), {1, 2}, object(), b"x", {1: "a"}, {"a": {None: 1}}, [NAN], {"a": [{True: 2}]}]
CIRCLE: Final[list[Any]] = []
CIRCLE.append(CIRCLE)
NO_RUN: Final[list[Any]] = [5, True, b"r", ["r"], "\ud800"]
NO_BLOCKS: Final[list[Any]] = [
    None, *NO_LIST, ["x"], [None], [[]], [{"kind": "text", "text": "x"}], [Block("text"), "x"],
    [Block(5)], [Block("text", text=b"x")], [Block("text", text=5)], [Block("text", opaque="{")],  # type: ignore[arg-type]
    [Block("text", number=True)], [Block("text", citations=("x",))], (Block("text") for _ in range(1)),
]  # fmt: skip
NO_EVENTS: Final[list[Any]] = [
    None, *NO_LIST, "", b"", [{"type": "t", "data": b"{}"}], [None], [("t", b"{}")], [NewEvent("t", b"{}"), "x"],
    [NewEvent("t", "{}")], [NewEvent(5, b"{}")], [Event("s", 1, "t", b"{}", 0)],  # type: ignore[arg-type]
]  # fmt: skip
NO_SELECTIONS: Final[list[Any]] = [5, "x", ["x"], {"x": 5}, {5: "x"}, {"x": None}, {("a",): "b"}]
NO_CHOICE: Final[list[Any]] = [*NO_TEXT, "human", "", "\ud800"]
FILE: Final = File(data=b"x", media_type="text/plain")
NO_FILE: Final[list[Any]] = [
    [File()], [File(data=b"x")], [File(data=b"x", path="x", media_type="a/b")], [File(path="x", media_id="x")],
    [File(data="x", media_type="a/b")], [File(path=5)], [File(path=b"x")], [File(media_id=5)], [File(media_id="")],  # type: ignore[arg-type]
    [File(data=b"x", media_type="png")], [File(data=b"x", media_type=5)], [File(data=b"x", media_type="a/b", name=5)],  # type: ignore[arg-type]
]  # fmt: skip
NO_CONTENT: Final[list[Any]] = [
    *(x for x in NO_LIST if x != "abc"), None, NAN, [5], [None], [b"x"], [["x"]], [{"kind": "text", "text": "x"}],
    *(x for x in NO_BLOCKS if isinstance(x, list) and x not in (["x"], [Block("text"), "x"])), FILE, *NO_FILE,
    [Block("tool_result", tool_call_id="t")], [Block(cast("Any", "odd"))], [Block("text", status="ok")],
    [Block("text", parts="[]")],
]  # fmt: skip
NO_INPUT: Final[list[Any]] = [
    None,
    5,
    NAN,
    True,
    b"{}",
    [],
    [1],
    {"a": NAN},
    {"a": {1}},
    {5: 1},
    {"a": object()},
    {"a": CIRCLE},
]
NO_WAIT: Final[list[Any]] = [None, -1, -0.5, NAN, float("inf"), "1", b"1", [1], object(), 10**5000]
NO_METADATA: Final[list[Any]] = [5, "x", ["x"], {1: 2}, *({"a": x} for x in NO_JSON)]
NO_PARTS: Final[list[Any]] = [
    b"x", NAN, {"x"}, object(), {5: 1}, [b"x"], [{"kind": "text", "text": 5}], [{"kind": "text"}], CIRCLE, {"x": CIRCLE},
    [{"kind": "data", "value": NAN}], [{"kind": "data", 5: 1}], [{"kind": "data", "v": {1}}], Block("text"), [Block("text")],
    *NO_FILE, [FILE, 5], [FILE, Block("text")], [FILE, {"kind": "bug"}], [FILE, b"x"],
]  # fmt: skip
