-- Version 5: holds that fence, and are fenced.

-- What a hold is known by is its token: whoever renews or ends it names it. It was called `id`: an older program, which
-- would take a hold that has run out for one that lasts, fails there.
ALTER TABLE holds RENAME COLUMN id TO token;

-- 1: no hold, but a compaction of a log in another file, which lets go up to `through` while it lasts.
ALTER TABLE holds ADD COLUMN is_floor INTEGER NOT NULL DEFAULT 0;
