"""What the providers' own libraries say of a payload: Google's typed models, and Amazon's model of its service."""

from __future__ import annotations

import functools
from typing import Any

import pytest


def check_gemini(payload: dict[str, Any]) -> None:
    """Raises what Google's library raises for contents and an instruction that it does not know."""
    types: Any = pytest.importorskip("google.genai.types")
    for content in payload["contents"]:
        types.Content.model_validate(content)
    types.GenerateContentConfig.model_validate({"systemInstruction": payload.get("systemInstruction")})


def check_bedrock(payload: dict[str, Any]) -> None:
    """Asserts that Amazon's model of Converse has these messages and this system prompt."""
    validate: Any = pytest.importorskip("botocore.validate")
    report = validate.ParamValidator().validate({"modelId": "m", **payload}, _converse())
    assert not report.has_errors(), report.generate_report()


@functools.cache
def _converse() -> Any:
    loaders: Any = pytest.importorskip("botocore.loaders")
    model: Any = pytest.importorskip("botocore.model")
    service = model.ServiceModel(loaders.Loader().load_service_model("bedrock-runtime", "service-2"))
    return service.operation_model("Converse").input_shape
