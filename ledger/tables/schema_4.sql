-- Version 4: calls and labels as tables, so that nobody looks for them in bodies.

-- The id of the conversation in its log. It was called `name`: all that an older program does begins by asking for it,
-- so what was open before this fails there, and writes nothing half.
ALTER TABLE conversations RENAME COLUMN name TO stream_id;

-- Which messages make a tool call; providers use ids again. `calls_from` of a conversation: of messages from this seq on
-- all calls are here, of older ones not yet. It falls to 0 in steps.
CREATE TABLE calls (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  tool_call_id TEXT NOT NULL,
  message      TEXT NOT NULL
) STRICT;
CREATE INDEX calls_by_id ON calls (conversation, tool_call_id);
ALTER TABLE conversations ADD COLUMN calls_from INTEGER NOT NULL DEFAULT 0;
UPDATE conversations SET calls_from = coalesce((SELECT max(seq) + 1 FROM messages WHERE conversation = conversations.id), 0);

-- The texts in `labels` of a conversation's metadata, or the one that it is. Those that are there are filled in by the
-- program: SQLite cuts a text at a NUL and knows no lone surrogates.
CREATE TABLE labels (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  label        TEXT NOT NULL,
  UNIQUE (conversation, label)
) STRICT;
CREATE INDEX labels_by_label ON labels (label);

-- The root is nobody's id: '' stands for it wherever parents are compared.
DROP INDEX messages_by_parent;
CREATE INDEX messages_by_parent ON messages (conversation, coalesce(parent, ''), is_committed, started, selected, id)
  WHERE on_path = 1;
