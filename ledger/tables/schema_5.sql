-- Version 5: holds that fence, and are fenced.

-- What a hold is known by is its token: whoever renews or ends it names it. It was called `id`: an older program, which
-- would take a hold that has run out for one that lasts, fails there.
ALTER TABLE holds RENAME COLUMN id TO token;

-- 1: no hold, but a compaction of a log in another file, which lets go up to `through` while it lasts.
ALTER TABLE holds ADD COLUMN is_floor INTEGER NOT NULL DEFAULT 0;

-- 1 once something was taken in that a conversation is made of. Of other streams in the log only the position is known, and
-- they are not listed.
ALTER TABLE conversations ADD COLUMN is_conversation INTEGER NOT NULL DEFAULT 0;
UPDATE conversations SET is_conversation = 1 WHERE runs > 0 OR messages > 0 OR active_at > 0 OR archived = 1
  OR title IS NOT NULL OR metadata IS NOT NULL OR erased IS NOT NULL
  OR EXISTS (SELECT 1 FROM uses WHERE conversation = conversations.id)
  OR EXISTS (SELECT 1 FROM choices WHERE conversation = conversations.id)
  OR EXISTS (SELECT 1 FROM selections WHERE conversation = conversations.id);
