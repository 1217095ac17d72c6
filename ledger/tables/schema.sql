-- The durable transcript in SQLite: committed messages, and how far of each log they reach.
--
-- Everything up to `projected_seq` of the log is here; events of runs that are open lie behind `replay_from`.
-- `leaf` is the last message of the active path, `leaf_seq` where the run of it began.
CREATE TABLE conversations (
  id            INTEGER PRIMARY KEY,
  name          TEXT NOT NULL UNIQUE,
  projected_seq INTEGER NOT NULL DEFAULT 0,
  replay_from   INTEGER NOT NULL DEFAULT 0,
  leaf          TEXT,
  leaf_seq      INTEGER NOT NULL DEFAULT 0,
  CHECK (0 <= replay_from AND replay_from <= projected_seq)
) STRICT;

-- `body` is a RunInfo as JSON. An open run is listed here and lives in the log.
CREATE TABLE runs (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  id           TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  status       TEXT NOT NULL,
  body         BLOB NOT NULL,
  UNIQUE (conversation, id)
) STRICT;
CREATE INDEX runs_by_id ON runs (id);

-- `body` is a Message as JSON, `crc` covers it; `on_path` is 0 for what an ended run left off the path.
CREATE TABLE messages (
  conversation INTEGER NOT NULL REFERENCES conversations (id),
  id           TEXT NOT NULL,
  run          TEXT NOT NULL,
  parent       TEXT,
  seq          INTEGER NOT NULL,
  on_path      INTEGER NOT NULL,
  crc          INTEGER NOT NULL,
  body         BLOB NOT NULL,
  UNIQUE (conversation, id)
) STRICT;
CREATE INDEX messages_by_seq ON messages (conversation, seq);

CREATE TRIGGER the_ledger_never_goes_back BEFORE UPDATE ON conversations
  WHEN NEW.projected_seq < OLD.projected_seq OR NEW.replay_from < OLD.replay_from
BEGIN SELECT RAISE (ABORT, 'the ledger never goes back'); END;

CREATE TRIGGER an_ended_run_stays_ended BEFORE UPDATE ON runs WHEN OLD.status <> 'open'
BEGIN SELECT RAISE (ABORT, 'an ended run stays ended'); END;
