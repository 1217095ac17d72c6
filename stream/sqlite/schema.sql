-- The log in one SQLite file. The rules of the log are the schema's own, so that no program can break them.
-- This is version 1; what is newer lies beside it, and changes what is here.
--
-- A stream's head, floor and origin live here, apart from its rows, and only rise: numbers are never used again.
CREATE TABLE streams (
  id     INTEGER PRIMARY KEY,
  name   TEXT NOT NULL UNIQUE,
  head   INTEGER NOT NULL DEFAULT 0,
  floor  INTEGER NOT NULL DEFAULT 0,
  origin INTEGER NOT NULL DEFAULT 0,
  CHECK (0 <= origin AND origin <= floor AND floor <= head)
) STRICT;

-- The newest append of every producer: epoch, number, and the seqs it got. NULL until the first append.
CREATE TABLE producers (
  id     INTEGER PRIMARY KEY,
  stream INTEGER NOT NULL REFERENCES streams (id),
  name   TEXT NOT NULL,
  epoch  INTEGER,
  seq    INTEGER,
  first  INTEGER,
  last   INTEGER,
  UNIQUE (stream, name)
) STRICT;

-- One row is one append: `n` events, the last of them number `last`, as a msgpack list of [type, data].
-- `aid` names the append, `crc` covers stream, last and data.
CREATE TABLE chunks (
  pos      INTEGER PRIMARY KEY,
  stream   INTEGER NOT NULL REFERENCES streams (id),
  last     INTEGER NOT NULL,
  n        INTEGER NOT NULL CHECK (n > 0),
  at       INTEGER NOT NULL,
  aid      BLOB NOT NULL,
  producer INTEGER REFERENCES producers (id),
  epoch    INTEGER,
  pseq     INTEGER,
  crc      INTEGER NOT NULL,
  data     BLOB NOT NULL,
  UNIQUE (stream, last)
) STRICT;

-- Sealed envelopes of projector states.
CREATE TABLE snapshots (
  stream    INTEGER NOT NULL REFERENCES streams (id),
  projector TEXT NOT NULL,
  last_seq  INTEGER NOT NULL,
  envelope  BLOB NOT NULL,
  UNIQUE (stream, projector, last_seq)
) STRICT;

-- Who this store is: one row.
CREATE TABLE store (incarnation TEXT NOT NULL) STRICT;

-- A row that does not continue its stream, or not its producer, is passed over. RETURNING tells the writer which
-- rows went in; it then asks why the others did not.
CREATE TRIGGER an_append_continues_its_stream BEFORE INSERT ON chunks
  WHEN NEW.last - NEW.n IS NOT (SELECT head FROM streams WHERE id = NEW.stream)
BEGIN SELECT RAISE (IGNORE); END;

CREATE TRIGGER an_append_continues_its_producer BEFORE INSERT ON chunks
  WHEN NEW.producer IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM producers AS p WHERE p.id = NEW.producer AND p.stream = NEW.stream AND (
      (NEW.epoch = p.epoch AND NEW.pseq = p.seq + 1) OR (NEW.pseq = 0 AND (p.epoch IS NULL OR NEW.epoch > p.epoch))))
BEGIN SELECT RAISE (IGNORE); END;

CREATE TRIGGER an_append_moves_head_and_watermark AFTER INSERT ON chunks
BEGIN
  UPDATE streams SET head = NEW.last WHERE id = NEW.stream;
  UPDATE producers SET epoch = NEW.epoch, seq = NEW.pseq, first = NEW.last - NEW.n + 1, last = NEW.last
    WHERE id = NEW.producer;
END;

CREATE TRIGGER events_never_change BEFORE UPDATE ON chunks
BEGIN SELECT RAISE (ABORT, 'events never change'); END;

-- REPLACE deletes rows without asking the DELETE triggers, so a row that is there is never inserted again.
CREATE TRIGGER events_are_never_replaced BEFORE INSERT ON chunks
  WHEN EXISTS (SELECT 1 FROM chunks WHERE pos = NEW.pos)
BEGIN SELECT RAISE (ABORT, 'events are never replaced'); END;

CREATE TRIGGER events_go_only_below_the_floor BEFORE DELETE ON chunks
  WHEN OLD.last > (SELECT floor FROM streams WHERE id = OLD.stream)
BEGIN SELECT RAISE (ABORT, 'events go only below the floor'); END;

CREATE TRIGGER head_floor_and_origin_never_fall BEFORE UPDATE ON streams
  WHEN NEW.head < OLD.head OR NEW.floor < OLD.floor OR NEW.origin < OLD.origin
    OR NEW.id <> OLD.id OR NEW.name <> OLD.name
BEGIN SELECT RAISE (ABORT, 'head, floor and origin never fall'); END;

CREATE TRIGGER streams_are_never_replaced BEFORE INSERT ON streams
  WHEN EXISTS (SELECT 1 FROM streams WHERE id = NEW.id OR name = NEW.name)
BEGIN SELECT RAISE (ABORT, 'streams are never replaced'); END;

CREATE TRIGGER streams_are_never_forgotten BEFORE DELETE ON streams
BEGIN SELECT RAISE (ABORT, 'streams are never forgotten'); END;

CREATE TRIGGER watermarks_never_fall BEFORE UPDATE ON producers
  WHEN OLD.epoch IS NOT NULL AND (NEW.epoch IS NULL OR NEW.seq IS NULL
    OR (NEW.epoch, NEW.seq) <= (OLD.epoch, OLD.seq))
BEGIN SELECT RAISE (ABORT, 'watermarks never fall'); END;

CREATE TRIGGER producers_stay_who_they_are BEFORE UPDATE ON producers
  WHEN NEW.id <> OLD.id OR NEW.stream <> OLD.stream OR NEW.name <> OLD.name
BEGIN SELECT RAISE (ABORT, 'producers stay who they are'); END;

CREATE TRIGGER producers_are_never_replaced BEFORE INSERT ON producers
  WHEN EXISTS (SELECT 1 FROM producers WHERE id = NEW.id OR (stream = NEW.stream AND name = NEW.name))
BEGIN SELECT RAISE (ABORT, 'producers are never replaced'); END;

CREATE TRIGGER producers_are_never_forgotten BEFORE DELETE ON producers
BEGIN SELECT RAISE (ABORT, 'producers are never forgotten'); END;
