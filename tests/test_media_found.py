"""Media of any provider: where their bytes are, and what a part of a result is."""

from __future__ import annotations

import pytest

from projector import Block
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import Media, media_of, opaque, part_block, signer_of


@pytest.mark.parametrize(("block", "wanted"), [
    (Block("media", media_type="a/b", fields={"data": "AA=="}), Media("a/b", data="AA==")),
    (Block("media", fields={"url": "data:image/gif;base64,AA=="}), Media("image/gif", data="AA==", is_image=True)),
    (Block("media", fields={"url": "https://x/y"}, provider_ref="image"), Media(url="https://x/y", is_image=True)),
    (Block("media", opaque=opaque("anthropic", '{"type":"image","source":{"type":"file","file_id":"f"}}')),
     Media(file_id="f", is_image=True)),
    (Block("media", opaque=opaque("chat", '{"type":"image_url","image_url":{"url":"https://x/y"}}')),
     Media(url="https://x/y", is_image=True)),
    (Block("media", opaque=opaque("chat", '{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}')),
     Media("audio/wav", data="AA==")),
    (Block("media", opaque=opaque("chat", '{"type":"file","file":{"filename":"a.pdf","file_data":"data:a/b;base64,AA=="}}')),
     Media("a/b", data="AA==", name="a.pdf")),
    (Block("media", opaque=opaque("google", '{"inlineData":{"mimeType":"image/png","data":"AA=="}}')),
     Media("image/png", data="AA==", is_image=True)),
    (Block("media", opaque=opaque("ag-ui", '{"type":"image","source":{"type":"url","value":"https://x/y"}}')),
     Media(url="https://x/y", is_image=True)),
    (Block("media", opaque=opaque("anthropic", '{"type":"document","title":"t","source":{"type":"text","data":"hi"}}')),
     Media(data="aGk=", name="t")),
    (Block("media", media_type="a/b"), Media("a/b")),
    (Block("media", media_type="a/b", opaque="7"), Media("a/b")),
])  # fmt: skip
def test_the_bytes_of_media_are_found_whoever_sent_them(block: Block, wanted: Media) -> None:
    assert media_of(block) == wanted


def test_a_part_of_a_result_is_a_block() -> None:
    assert part_block({"kind": "text", "text": "x"}) == text_block("x")
    part = {"kind": "media", "media_type": "a/b", "data": "AA==", "opaque": {"provider": "p", "payload": {}}}
    assert media_of(part_block(part)) == Media("a/b", data="AA==")
    assert signer_of(part_block(part)) == "p"
