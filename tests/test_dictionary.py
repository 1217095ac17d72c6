"""The dictionary of pages: it is the one that files were written with, holds nobody's words, and makes short pages shorter."""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from ledger import RunInfo, open_ledger
from ledger.tables.bodies import unpack_page
from ledger.tables.dictionary import DICTIONARY
from projector import Block, Message
from projector.message import Unknown
from projector.run_draft import Usage
from tests.paged_talks import PLACE, everything, packed, talk, unzip, wrong

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

STRUCTS: Final = (Block, Message, RunInfo, Unknown, Usage)
FIXED: Final = {"provider", "payload", "kind", "text"}  # in free form that we write ourselves


def test_it_is_what_files_were_written_with() -> None:
    """With another one they can not be read: a change needs a schema of its own, and this one stays for the pages of before."""
    assert hashlib.sha256(DICTIONARY).hexdigest() == "a613c4e407f3b250627abbd7bfbb3140ba91b70e4e276405b6b0afe6a63713ba"


def test_its_keys_are_those_of_our_structs() -> None:
    keys = set(re.findall(rb'\\*"(\w+)\\*":', DICTIONARY))
    fields = {field.encode_name for kind in STRUCTS for field in msgspec.structs.fields(kind)}
    assert {key.decode() for key in keys} <= fields | FIXED
    assert not re.findall(rb'"text":"\w|"name":"\w|"(?:run_)?id":"\w', DICTIONARY)


async def test_pages_with_it_and_without_it_are_read_and_those_with_it_are_shorter(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, 3)
        before = await everything(ledger)
        await ledger.compact(PLACE)
        assert await everything(ledger) == before
        pages = packed(path)
        assert len(pages) == 2
        for page in pages:
            with pytest.raises(zlib.error, match="Error 2"):
                zlib.decompress(page)
            assert len(page) < 0.75 * len(zlib.compress(unzip(page)))
            assert unpack_page(zlib.compress(unzip(page))) == unpack_page(page)
    assert not await wrong(path)


def test_a_page_of_another_dictionary_is_named_as_damaged() -> None:
    packer = zlib.compressobj(zdict=DICTIONARY[1:])
    page = packer.compress(msgspec.msgpack.encode([b"a body"])) + packer.flush()
    with pytest.raises(ValueError, match="can't be decompressed"):
        unpack_page(page)
