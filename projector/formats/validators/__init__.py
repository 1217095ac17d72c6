"""What providers demand of a history, rule by rule, each with the place of their documentation that says so.

A rule is a function from a payload to the violations it finds. What the documentation leaves open is not a rule.
"""

from projector.formats.anthropic.validator import validate_anthropic
from projector.formats.bedrock.validator import validate_bedrock
from projector.formats.chat.validator import validate_chat
from projector.formats.gemini.validator import validate_gemini
from projector.formats.responses.validator import validate_responses

__all__ = ["validate_anthropic", "validate_bedrock", "validate_chat", "validate_gemini", "validate_responses"]
