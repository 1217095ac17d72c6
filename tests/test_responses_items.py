"""Items of the Responses API: histories in and out, and what is mended on the way."""

from __future__ import annotations

from typing import Any

import pytest

from projector import Block, Message
from projector.formats import FormatError
from projector.formats.responses import reader as responses
from projector.formats.responses import writer as responses_writer
from projector.formats.validators import validate_responses
from tests.test_responses import CALL, HELLO, OUTPUT, REASONING, read, text_item

SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "a", "status": "completed", "action": {"commands": ["ls"]}}
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "a", "status": "completed", "action": {"type": "wait"}}
HISTORIES: dict[str, list[dict[str, Any]]] = {
    "roles": [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, HELLO],
    "phases": [HELLO, text_item("a", phase="commentary"), text_item("b", id="msg_2", phase="final_answer")],
    "easy": [HELLO, {"role": "assistant", "content": "x", "phase": "commentary"}, HELLO],
    "calls": [HELLO, CALL | {"namespace": "n", "caller": {"type": "direct"}}, OUTPUT | {"id": "fco_1"}],
    "parallel calls": [HELLO, CALL, CALL | {"id": "fc_2", "call_id": "b"}, OUTPUT | {"call_id": "b"}, OUTPUT],
    "custom": [HELLO, {"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "s", "input": "x y"},
               {"type": "custom_tool_call_output", "call_id": "a", "output": "1"}],
    "shell": [HELLO, SHELL, {"type": "shell_call_output", "call_id": "a",
                             "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "timeout"}}]}],
    "hosted shell": [HELLO, SHELL | {"environment": {"type": "container_reference", "container_id": "c"}},
                     {"type": "shell_call_output", "id": "sho_1", "call_id": "a", "output": []}],
    "local shell": [HELLO, {"type": "local_shell_call", "id": "lsh_1", "call_id": "a", "status": "completed",
                            "action": {"type": "exec", "command": ["ls"], "env": {}}},
                    {"type": "local_shell_call_output", "call_id": "a", "output": "x"}],
    "patch": [HELLO, {"type": "apply_patch_call", "id": "apc_1", "call_id": "a", "status": "completed",
                      "operation": {"type": "create_file", "path": "p", "diff": "+x"}},
              {"type": "apply_patch_call_output", "call_id": "a", "status": "failed", "output": "no"}],
    "computer": [HELLO, COMPUTER, {"type": "computer_call_output", "call_id": "a",
                                   "output": {"type": "computer_screenshot", "image_url": "data:x"}}],
    "media": [{"role": "user", "content": [
        {"type": "input_text", "text": "see", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
        {"type": "input_file", "file_id": "file-1"}]}],
    "parts of results": [HELLO, CALL, OUTPUT | {"output": [{"type": "input_text", "text": "a"},
                                                          {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}],
    "server": [HELLO, REASONING, {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
               text_item("x"), {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FB"}],
    "programs": [HELLO, {"type": "program", "id": "cm_1", "call_id": "p", "code": "f()", "fingerprint": "Z0FB"}, CALL, OUTPUT,
                 {"type": "program_output", "id": "po_1", "call_id": "p", "result": "1", "status": "completed"}],
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_comes_out_as_it_went_in(name: str) -> None:
    export = responses_writer.write(read(*HISTORIES[name]))
    said = [{key: value for key, value in item.items() if value != []} for item in export.payload]
    assert said == [{key: value for key, value in item.items() if value != []} for item in HISTORIES[name]]
    assert (export.losses, export.repairs) == ((), ())
    assert validate_responses(export.payload) == []


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([HELLO, CALL, HELLO], "never answered"), ([HELLO, OUTPUT, HELLO], "without a call"),
        ([HELLO, CALL, OUTPUT, OUTPUT], "second result"), ([HELLO, text_item(" \n"), HELLO], "blank"),
        ([HELLO | {"content": "a\ud83d\0"}], "characters that no text may have were replaced: 2"),
        ([HELLO, CALL | {"arguments": '{"a'}, OUTPUT], "no JSON object"),
        ([HELLO, text_item("a"), HELLO, text_item("b")], "there twice"),
        ([HELLO, CALL, OUTPUT, CALL | {"id": "fc_2"}, OUTPUT], "is sent as"), ([HELLO, REASONING, HELLO], "nothing follows"),
        ([HELLO, SHELL, HELLO], "never answered"), ([HELLO, HISTORIES["patch"][1], HELLO], "never answered"),
        ([HELLO, HISTORIES["custom"][1], HELLO], "never answered"), ([HELLO, COMPUTER, HELLO], "without its picture"),
    ],
)  # fmt: skip
def test_a_broken_history_is_mended_and_it_is_said(history: list[dict[str, Any]], said: str) -> None:
    messages = read(*history)
    export = responses_writer.write(messages)
    assert validate_responses(export.payload) == []
    assert [repair for repair in export.repairs if said in repair.what]
    assert read(*history) == messages


def test_what_another_provider_has_made_is_not_sent_and_it_is_said() -> None:
    thought = Block("reasoning", text="hm", sealed=True, signature="c2ln")
    cited = Block(
        "text", number=1, text="x", sealed=True, provider_ref="other", citations=('{"source":{"type":"char_location"}}',)
    )
    export = responses_writer.write([Message("m", None, "r", "assistant", "complete", (thought, cited), 0, 0)])
    assert export.payload == [{"role": "assistant", "content": "x"}]
    lost = " | ".join(loss.what for loss in export.losses)
    assert all(what in lost for what in ("reasoning", "citations of another", "not one of OpenAI's"))


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("7", "the document"), ("{}", "input"), ("[7]", "item 0"), ('[{"role":"bard"}]', "bard"), ("[", "list"),
        ('[{"content":"x"}]', "role"),
    ],
)  # fmt: skip
def test_what_is_no_history_is_refused_with_its_place(document: str, place: str) -> None:
    with pytest.raises(FormatError, match=place):
        list(responses.read(document))
