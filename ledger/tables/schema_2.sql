-- Version 2: the tree, what a list of conversations shows, amendments, media, holds, erasure.

DROP TRIGGER the_ledger_never_goes_back;
DROP TRIGGER an_ended_run_stays_ended;

-- `messages` and `runs` count what there is. `active_at` is the time (ms) of the newest run that began or ended.
-- `orphans` counts the runs whose parent is not there. `holes` is a JSON list of [after, through]: events that were gone
-- before they were taken in. `erased` is JSON, too: what there was, and whether all of it has gone. `rewound` counts how
-- often a repair has put the ledger back to where its log ends.
ALTER TABLE conversations ADD COLUMN title TEXT;
ALTER TABLE conversations ADD COLUMN metadata TEXT;
ALTER TABLE conversations ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN active_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN orphans INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN holes TEXT;
ALTER TABLE conversations ADD COLUMN erased TEXT;
ALTER TABLE conversations ADD COLUMN rewound INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations DROP COLUMN leaf_seq;

UPDATE conversations SET
  messages = (SELECT count(*) FROM messages AS m WHERE m.conversation = conversations.id AND m.on_path),
  runs = (SELECT count(*) FROM runs AS r WHERE r.conversation = conversations.id),
  active_at = coalesce((
    SELECT max(coalesce(json_extract(r.body, '$.ended_at'), json_extract(r.body, '$.started_at')))
    FROM runs AS r WHERE r.conversation = conversations.id), 0);
CREATE INDEX conversations_by_activity ON conversations (active_at DESC, name);

-- `first` is the run's first message on the path.
ALTER TABLE runs ADD COLUMN first TEXT;
UPDATE runs SET first = (
  SELECT m.id FROM messages AS m WHERE m.conversation = runs.conversation AND m.run = runs.id AND m.on_path
  ORDER BY m.seq LIMIT 1);
CREATE INDEX runs_by_seq ON runs (conversation, seq);
CREATE INDEX open_runs ON runs (conversation, seq) WHERE status = 'open';

-- `started` is the seq of the run's `run.started`, `is_committed` is 0 for a run that failed, `selected` the seq of the
-- newest `branch.selected` that chose this message among its siblings.
CREATE TABLE messages_2 (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  id           TEXT NOT NULL,
  run          TEXT NOT NULL,
  parent       TEXT,
  seq          INTEGER NOT NULL,
  on_path      INTEGER NOT NULL,
  started      INTEGER NOT NULL,
  is_committed INTEGER NOT NULL,
  selected     INTEGER NOT NULL DEFAULT 0,
  crc          INTEGER NOT NULL,
  body         BLOB NOT NULL,
  UNIQUE (conversation, id)
) STRICT;
INSERT INTO messages_2 (conversation, id, run, parent, seq, on_path, started, is_committed, crc, body)
  SELECT m.conversation, m.id, m.run, m.parent, m.seq, m.on_path, coalesce(r.seq, m.seq), coalesce(r.status, '') <> 'failed',
    m.crc, m.body
  FROM messages AS m LEFT JOIN runs AS r ON r.conversation = m.conversation AND r.id = m.run;
DROP TABLE messages;
ALTER TABLE messages_2 RENAME TO messages;
CREATE INDEX messages_by_seq ON messages (conversation, seq);
CREATE INDEX messages_by_parent ON messages (conversation, parent, is_committed, started, selected, id) WHERE on_path;
CREATE INDEX messages_by_run ON messages (conversation, run);

CREATE TABLE selections (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  seq          INTEGER NOT NULL,
  message      TEXT NOT NULL,
  UNIQUE (conversation, seq)
) STRICT;

-- Once per content. `uses` says which conversations speak of it.
CREATE TABLE media (
  id         TEXT NOT NULL UNIQUE,
  media_type TEXT NOT NULL,
  size       INTEGER NOT NULL,
  data       BLOB NOT NULL
) STRICT;
CREATE TABLE uses (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  media        TEXT NOT NULL,
  UNIQUE (conversation, media)
) STRICT;
CREATE INDEX uses_by_media ON uses (media);

-- Whoever reads a log for long keeps compaction from it; `until` (ms) is moved on while it lives.
CREATE TABLE holds (
  id           TEXT NOT NULL UNIQUE,
  conversation TEXT,
  through      INTEGER NOT NULL,
  until        INTEGER NOT NULL
) STRICT;

-- Which log this is the ledger of, where that lies elsewhere.
CREATE TABLE logs (incarnation TEXT NOT NULL UNIQUE) STRICT;

CREATE TRIGGER the_ledger_never_goes_back BEFORE UPDATE ON conversations
  WHEN (NEW.projected_seq < OLD.projected_seq OR NEW.replay_from < OLD.replay_from) AND NEW.rewound = OLD.rewound
BEGIN SELECT RAISE (ABORT, 'the ledger never goes back'); END;

CREATE TRIGGER an_ended_run_stays_ended BEFORE UPDATE ON runs
  WHEN OLD.status <> 'open' AND (NEW.status, NEW.seq, NEW.id) IS NOT (OLD.status, OLD.seq, OLD.id)
BEGIN SELECT RAISE (ABORT, 'an ended run stays ended'); END;
