-- Version 3: what is remembered of how the model's view was made.

-- `body` is that of an event of `type`: context.compacted, context.expanded, provider.session.
CREATE TABLE choices (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  seq          INTEGER NOT NULL,
  type         TEXT NOT NULL,
  crc          INTEGER NOT NULL,
  body         BLOB NOT NULL,
  UNIQUE (conversation, seq)
) STRICT;
