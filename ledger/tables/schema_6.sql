-- Version 6: what is kept of a path in a process is known to be good, and bodies lie in pages.

-- A page holds the bodies of some messages, or of some runs, of one conversation: a msgpack list of them, compressed by zlib.
-- `crc` covers its id and its conversation, too. Bodies are moved into pages by compaction, some at a time. No id is given
-- twice, so what a page held that is gone is never taken for what another holds.
CREATE TABLE pages (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  crc          INTEGER NOT NULL,
  data         BLOB NOT NULL
) STRICT;
CREATE INDEX pages_by_conversation ON pages (conversation);

-- Where a body lies: in the row itself, or in a page; then `row_body` is empty, and `place` is 64 times the id of the page
-- and which of its bodies it is, from 0 on. It was called `body`: an older program, which would take what lies in a page
-- for damaged, fails there.
ALTER TABLE messages RENAME COLUMN body TO row_body;
ALTER TABLE messages ADD COLUMN place INTEGER;
ALTER TABLE runs RENAME COLUMN body TO row_body;
ALTER TABLE runs ADD COLUMN place INTEGER;

-- Covers the body of a run; NULL in rows that were written before.
ALTER TABLE runs ADD COLUMN crc INTEGER;

-- Ids are long: an index names as few of them as it can.
DROP INDEX messages_by_parent;
CREATE INDEX messages_by_parent ON messages (conversation, coalesce(parent, '')) WHERE on_path = 1;

-- The bodies of all messages and runs up to this seq have been moved; what was changed since lies in its row again.
ALTER TABLE conversations ADD COLUMN paged_seq INTEGER NOT NULL DEFAULT 0;

-- How often something committed of a conversation was changed where it stands, or taken away: a message, or what is said of
-- a run that has ended. Whoever keeps messages reads it with whatever he reads next. The schema counts, so nobody forgets.
ALTER TABLE conversations ADD COLUMN amended INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER a_changed_message_is_counted AFTER UPDATE OF conversation, id, run, parent, seq, on_path, crc, row_body ON messages
  WHEN NEW.place IS NULL OR (NEW.conversation, NEW.id, NEW.run, NEW.parent, NEW.seq, NEW.on_path, NEW.crc)
    IS NOT (OLD.conversation, OLD.id, OLD.run, OLD.parent, OLD.seq, OLD.on_path, OLD.crc)  -- else it has moved into a page
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = OLD.conversation; END;

CREATE TRIGGER a_message_that_goes_is_counted AFTER DELETE ON messages
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = OLD.conversation; END;

CREATE TRIGGER a_changed_run_is_counted AFTER UPDATE ON runs
  WHEN OLD.status <> 'open' AND (NEW.place IS NULL OR (NEW.conversation, NEW.id, NEW.seq, NEW.status, NEW.first)
    IS NOT (OLD.conversation, OLD.id, OLD.seq, OLD.status, OLD.first))
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = OLD.conversation; END;

CREATE TRIGGER a_run_that_goes_is_counted AFTER DELETE ON runs
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = OLD.conversation; END;

-- What an INSERT OR REPLACE takes away fires no trigger of its own.
CREATE TRIGGER a_replaced_message_is_counted BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM messages WHERE conversation = NEW.conversation AND id = NEW.id)
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = NEW.conversation; END;

CREATE TRIGGER a_replaced_run_is_counted BEFORE INSERT ON runs
WHEN EXISTS (SELECT 1 FROM runs WHERE conversation = NEW.conversation AND id = NEW.id AND status <> 'open')
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = NEW.conversation; END;
