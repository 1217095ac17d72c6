"""A small stream of each format that says a little of everything."""

from __future__ import annotations

from typing import Any, Final

Chunk = dict[str, Any]

STARTS: Final[dict[str, list[Chunk]]] = {
    "agui": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m0"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m0", "delta": "hm"},
        {"type": "REASONING_ENCRYPTED_VALUE", "entityId": "m0", "subtype": "message", "encryptedValue": "x"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi", "metadata": {"a": 1}},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look", "parentMessageId": "m"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"a":1}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "messageId": "t", "content": "ok"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "n", "delta": "So"},
        {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [
                {"id": "m", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]},
                {"id": "t", "role": "tool", "toolCallId": "c", "content": "ok"},
                {"id": "p", "role": "assistant", "content": "More"},
            ],
        },
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "usage": [{"inputTokens": 3}], "outcome": {"type": "success"}},
    ],
    "ai-sdk": [
        {"type": "start", "messageId": "m", "messageMetadata": {"a": {"b": 1}}},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "r", "providerMetadata": {"anthropic": {"signature": "s"}}},
        {"type": "reasoning-delta", "id": "r", "delta": "hm"},
        {"type": "reasoning-end", "id": "r"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "Hi"},
        {"type": "text-end", "id": "t", "citations": [{"type": "url"}]},
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "look", "dynamic": True},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a":1}'},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": {"a": 1}},
        {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a", "reason": "why"},
        {"type": "tool-approval-response", "approvalId": "a", "approved": True, "reason": "fine"},
        {"type": "tool-output-available", "toolCallId": "c", "output": {"b": 2}, "providerMetadata": {"x": {}}},
        {"type": "tool-input-error", "toolCallId": "d", "toolName": "look", "input": "{", "errorText": "bad"},
        {"type": "file", "url": "data:image/png;base64,AA==", "mediaType": "image/png"},
        {"type": "source-url", "sourceId": "s", "url": "https://x"},
        {"type": "data-weather", "data": {"t": 1}},
        {"type": "finish-step"},
        {"type": "message-metadata", "messageMetadata": {"a": {"c": 2}}},
        {"type": "finish", "finishReason": "stop"},
    ],
    "anthropic": [
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "", "citations": []}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "citations_delta", "citation": {"type": "char_location"}},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "c", "name": "look", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "no"}},
            "usage": {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}},
        },
        {"type": "message_stop"},
    ],
    "bedrock": [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s"}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "Hi"}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"citation": {"title": "x"}}}},
        {"contentBlockStart": {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "c", "name": "look"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"a":1}'}}}},
        {"contentBlockStop": {"contentBlockIndex": 2}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 5}, "metrics": {"latencyMs": 7}}},
        {
            "output": {
                "message": {"role": "assistant", "content": [{"text": "Hi"}, {"toolUse": {"toolUseId": "d", "name": "n"}}]}
            },
            "stopReason": "end_turn",
            "usage": {"inputTokens": 3},
        },
    ],
    "chat": [
        {"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
        {
            "id": "x",
            "choices": [{"index": 0, "delta": {"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]}}],
        },
        {
            "id": "x",
            "choices": [
                {"index": 0, "delta": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "b", "index": 1}]}}
            ],
        },
        {"id": "x", "choices": [{"index": 0, "delta": {"content": "Hi"}}], "created": 5},
        {"id": "x", "choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}}]},
        {"id": "x", "choices": [{"index": 0, "delta": {"annotations": [{"type": "url_citation", "url": "u"}]}}]},
        {
            "id": "x",
            "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "look"}}]}}],
        },
        {
            "id": "x",
            "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]}}],
        },
        {"id": "x", "choices": [{"index": 0, "delta": {"audio": {"id": "a", "data": "AA==", "transcript": "hi"}}}]},
        {"id": "x", "choices": [{"index": 0, "delta": {"refusal": "no"}, "finish_reason": "stop"}]},
        {
            "id": "x",
            "choices": [],
            "usage": {"prompt_tokens": 3, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 2}},
        },
    ],
    "gemini": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": True}]}}], "responseId": "x"},
        {"candidates": [{"content": {"parts": [{"text": "Hi"}, {"text": "!", "thoughtSignature": "s"}]}}]},
        {
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "s"}]}}
            ]
        },
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "n", "id": "c", "willContinue": True}}]}}]},
        {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {
                                "functionCall": {
                                    "partialArgs": [
                                        {"jsonPath": "$.a[0]", "stringValue": "x", "willContinue": True},
                                        {"jsonPath": "$.b", "numberValue": 5},
                                    ],
                                    "willContinue": True,
                                }
                            }
                        ]
                    }
                }
            ]
        },
        {"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]},
        {"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}, {"odd": 1}]}}]},
        {
            "candidates": [
                {
                    "finishReason": "SAFETY",
                    "finishMessage": "no",
                    "groundingMetadata": {"groundingChunks": [{"web": {"uri": "u"}}]},
                }
            ],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5},
        },
    ],
    "cohere": [
        {"type": "message-start", "id": "x", "delta": {"message": {"role": "assistant", "content": [], "citations": []}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I look."}}},
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "thinking", "thinking": "h"}}}},
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"thinking": "m"}}}},
        {"type": "content-end", "index": 0},
        {"type": "content-start", "index": 1, "delta": {"message": {"content": {"type": "text", "text": ""}}}},
        {"type": "content-delta", "index": 1, "delta": {"message": {"content": {"text": "Hi"}}}},
        {
            "type": "citation-start",
            "index": 0,
            "delta": {"message": {"citations": {"start": 0, "end": 2, "text": "Hi", "sources": [], "content_index": 1}}},
        },
        {"type": "citation-end", "index": 0},
        {
            "type": "tool-call-start",
            "index": 0,
            "delta": {
                "message": {"tool_calls": {"id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}}
            },
        },
        {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": '{"a":1}'}}}}},
        {"type": "tool-call-end", "index": 0},
        {
            "type": "message-end",
            "delta": {
                "finish_reason": "TOOL_CALL",
                "usage": {"billed_units": {"input_tokens": 1}, "tokens": {"input_tokens": 3.0, "output_tokens": 5}},
            },
        },
        {"is_finished": False, "event_type": "stream-start", "generation_id": "g"},
        {"is_finished": False, "event_type": "text-generation", "text": "So"},
        {"event_type": "citation-generation", "citations": [{"start": 0, "end": 2, "text": "So", "document_ids": ["d"]}]},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "look", "parameters": '{"a"'}},
        {"event_type": "tool-calls-generation", "tool_calls": [{"name": "look", "parameters": {"a": 1}}]},
        {
            "is_finished": True,
            "event_type": "stream-end",
            "finish_reason": "COMPLETE",
            "response": {"text": "So it is", "meta": {"tokens": {"input_tokens": 3, "output_tokens": 5}}},
        },
    ],
    "gemini-interactions": [
        {"event_type": "interaction.created", "interaction": {"id": "v1_x", "status": "in_progress", "object": "interaction"}},
        {"event_type": "interaction.status_update", "interaction_id": "v1_x", "status": "in_progress"},
        {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
        {
            "event_type": "step.delta",
            "index": 0,
            "delta": {"type": "thought_summary", "content": {"type": "text", "text": "hm"}},
        },
        {"event_type": "step.delta", "index": 0, "delta": {"type": "thought_signature", "signature": "c2ln"}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "step.start", "index": 1, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 1, "delta": {"type": "text", "text": "Hi"}},
        {
            "event_type": "step.delta",
            "index": 1,
            "delta": {"type": "text_annotation_delta", "annotations": [{"type": "url_citation", "url": "u"}]},
        },
        {"event_type": "step.delta", "index": 1, "delta": {"type": "image", "mime_type": "image/png", "data": "AA=="}},
        {"event_type": "step.stop", "index": 1},
        {"event_type": "step.start", "index": 2, "step": {"type": "function_call", "id": "c", "name": "look", "arguments": {}}},
        {"event_type": "step.delta", "index": 2, "delta": {"type": "arguments_delta", "arguments": '{"a":1}'}},
        {"event_type": "step.stop", "index": 2},
        {"event_type": "step.start", "index": 3, "step": {"type": "google_search_call", "id": "s"}},
        {"event_type": "step.delta", "index": 3, "delta": {"type": "google_search_call", "arguments": {"queries": ["x"]}}},
        {"event_type": "step.stop", "index": 3},
        {"event_type": "step.start", "index": 4, "step": {"type": "google_search_result", "call_id": "s"}},
        {"event_type": "step.delta", "index": 4, "delta": {"type": "google_search_result", "result": [{"a": 1}]}},
        {"event_type": "step.stop", "index": 4},
        {"event_type": "step.start", "index": 5, "step": {"type": "function_result", "call_id": "c", "result": "ok"}},
        {"event_type": "step.stop", "index": 5},
        {
            "event_type": "interaction.completed",
            "interaction": {
                "id": "v1_x",
                "status": "completed",
                "usage": {"total_input_tokens": 3, "total_output_tokens": 5, "total_thought_tokens": 2},
                "steps": [{"type": "thought"}],
            },
        },
    ],
    "ollama": [
        {"model": "m", "created_at": "x", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "", "thinking": "."}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "H"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "i"}, "done": False},
        {
            "model": "m",
            "message": {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": {"a": 1}}}]},
            "done": False,
        },
        {"model": "m", "message": {"role": "assistant", "content": "", "images": ["iVBORw0KGgo="]}, "done": False},
        {
            "model": "m",
            "message": {"role": "assistant", "content": "."},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 3,
            "eval_count": 5,
        },
    ],
    "responses": [
        {"type": "response.created", "sequence_number": 0, "response": {"id": "x", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"id": "rs", "type": "reasoning", "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        },
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {"id": "m", "type": "message", "role": "assistant", "content": []},
        },
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "H"},
        {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": {"type": "url_citation"}},
        {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "Hi"},
        {
            "type": "response.output_item.added",
            "output_index": 2,
            "item": {"id": "f", "type": "function_call", "call_id": "c", "name": "look", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a":'},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"a":1}'},
        {
            "type": "response.completed",
            "response": {
                "id": "x",
                "status": "completed",
                "usage": {"input_tokens": 3, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}},
                "output": [
                    {"id": "f", "type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'},
                    {"id": "n", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So"}]},
                ],
            },
        },
    ],
}
