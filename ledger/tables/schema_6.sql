-- Version 6: what is kept of a path in a process is known to be good.

-- How often something committed of a conversation was changed where it stands, or taken away: a message, or what is said of
-- a run that has ended. Whoever keeps messages reads it with whatever he reads next. The schema counts, so nobody forgets.
ALTER TABLE conversations ADD COLUMN amended INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER a_changed_message_is_counted AFTER UPDATE OF conversation, id, run, parent, seq, on_path, crc, body ON messages
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = OLD.conversation; END;

CREATE TRIGGER a_message_that_goes_is_counted AFTER DELETE ON messages
BEGIN UPDATE conversations SET amended = amended + 1 WHERE id = OLD.conversation; END;

CREATE TRIGGER a_changed_run_is_counted AFTER UPDATE ON runs WHEN OLD.status <> 'open'
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
