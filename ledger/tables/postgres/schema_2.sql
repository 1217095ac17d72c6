-- Version 2: names that others give, of tool calls and labels, may be longer than what an index of PostgreSQL takes in. Only
-- their beginnings are in it: who looks for one asks for its beginning, too (`ledger.tables.texts.among`).
DROP INDEX calls_by_id;
CREATE INDEX calls_by_id ON calls (conversation, substr(tool_call_id, 1, 200));
ALTER TABLE labels DROP CONSTRAINT labels_conversation_label_key;
CREATE INDEX labels_of_a_conversation ON labels (conversation, substr(label, 1, 200));
DROP INDEX labels_by_label;
CREATE INDEX labels_by_label ON labels (substr(label, 1, 200));
