"""Files that older versions have made, and what lies in a file and beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

VERSION_1: Final = Path(__file__).parent / "fixtures" / "version_1.db.gz"
VERSION_2: Final = VERSION_1.with_name("version_2.db.gz")
VERSION_3: Final = VERSION_1.with_name("version_3.db.gz")
VERSION_4: Final = VERSION_1.with_name("version_4.db.gz")
VERSION_5: Final = VERSION_1.with_name("version_5.db.gz")
VERSION_6: Final = VERSION_1.with_name("version_6.db.gz")
LOG_VERSION_2: Final = VERSION_1.with_name("log_version_2.db.gz")
OLD_INCARNATION: Final = "9b15cd548301805ced2d40845e4b0ece"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def rows(path: Path, text: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(text).fetchall()
