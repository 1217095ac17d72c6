"""The formats of providers, one file each, as pure functions of what they stream and keep.

Reading a file and talking to a server must not live here.
"""

from projector.formats.anthropic import AnthropicStream
from projector.formats.format import FormatError, StreamEnd, StreamFormat

STREAMS = {"anthropic": AnthropicStream}
"""Stream formats by the name that `Run.feed` and `tailfold play --format` take."""

__all__ = ["STREAMS", "AnthropicStream", "FormatError", "StreamEnd", "StreamFormat"]
