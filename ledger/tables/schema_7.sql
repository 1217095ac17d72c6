-- Version 7: what a run said is found by where it started, and pages are compressed with a dictionary.

-- Ids are long, and whatever is asked of a run's messages knows where it started.
DROP INDEX messages_by_run;
CREATE INDEX messages_by_start ON messages (conversation, started);

-- What is written from here on is compressed with a dictionary (`dictionary.py`); pages of before are read as they are. It was
-- called `data`: an older program, which would take such a page for damaged, fails there.
ALTER TABLE pages RENAME COLUMN data TO packed;
