"""The formats of providers and programs, one folder each, as pure functions of what they stream and keep.

Reading a file and talking to a server must not live here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projector.formats.agui.stream_writer import AguiStreamWriter
    from projector.formats.ai_sdk.stream_writer import AiSdkStreamWriter
    from projector.formats.format import Export, FormatError, StreamEnd, StreamFormat
    from projector.formats.registry import READERS, STREAM_WRITERS, STREAMS, WRITERS, write_stream
else:
    from stream.lazy_names import on_demand as _on_demand

    __getattr__, __dir__ = _on_demand(
        __name__,
        {
            "projector.formats.agui.stream_writer": "AguiStreamWriter",
            "projector.formats.ai_sdk.stream_writer": "AiSdkStreamWriter",
            "projector.formats.format": "Export FormatError StreamEnd StreamFormat",
            "projector.formats.registry": "READERS STREAM_WRITERS STREAMS WRITERS write_stream",
        },
    )

__all__ = [
    "READERS",
    "STREAMS",
    "STREAM_WRITERS",
    "WRITERS",
    "AguiStreamWriter",
    "AiSdkStreamWriter",
    "Export",
    "FormatError",
    "StreamEnd",
    "StreamFormat",
    "write_stream",
]
