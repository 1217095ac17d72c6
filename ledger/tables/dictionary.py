"""What pages of bodies have in common before anything is said: their compression begins as if it had just read this."""

from __future__ import annotations

from typing import Final

# It is never changed again, and nothing is added: a page that was written with it is read with the very same bytes, or not at
# all. Another dictionary needs another schema, as this one did: an older program would take such pages for damaged. It holds
# field names and fixed words of messages and runs as they are encoded, and nothing that anybody said; what is most frequent
# comes last, where it is the cheapest to point at.
DICTIONARY: Final = (
    b'"unknown":[{"seq":1,"fields":{"metadata":{"citations":["approval":"provider_ref":"signature":"'
    b'"kind":"media","kind":"server_tool_call","kind":"reasoning","text":"","usage":{"":{"input":1,"output":1,"cached":1,"raw":"'
    b'"role":"system","status":"partial","number":1,'
    b'"kind":"provider","sealed":true,"opaque":"{\\"provider\\":\\"\\",\\"payload\\":{\\"'
    b'{"kind":"tool_call","sealed":true,"name":"","tool_call_id":"","input":"{\\"\\":\\"\\"}","parse":"ok"}'
    b'"role":"tool","status":"complete","blocks":[{"kind":"tool_result","sealed":true,"tool_call_id":"","status":"ok",'
    b'"parts":"[{\\"kind\\":\\"text\\",\\"text\\":\\"{"conversation":"","run_id":"","status":"committed",'
    b'"parent_message_id":null,"trigger":"submit","seq":1,"started_at":1,"model":null,"provider":null,"outcome":"completed",'
    b'"recovered":null,"finish_reason":null,"error":null,"end_seq":1,"ended_at":1,"messages":2,"usage":{},"prompts":[1]}'
    b'{"id":"","parent_id":null,"run_id":"","role":"assistant","status":"complete",'
    b'"blocks":[{"kind":"text","text":"","sealed":true}],"created_at":1,"seq":1}'
)
