-- Version 2: `chunks`, a row an append, becomes `appends`; `chunks` now holds many appends a row.
--
-- `appends` is kept small by moving runs of its rows into `chunks`, so that appends to a hundred streams touch a handful
-- of pages, and not a page of a large index for each stream. No foreign keys: its first trigger asks for more.

-- `guard` follows from the other numbers of a row: a flipped bit in any of them is noticed. It moves by as much as they
-- do, so that what was wrong stays wrong.
ALTER TABLE streams ADD COLUMN guard INTEGER NOT NULL DEFAULT 0;
UPDATE streams SET guard = 3 * (head % 1000003) + 5 * (floor % 1000003) + 7 * (origin % 1000003);

DROP TRIGGER watermarks_never_fall;
ALTER TABLE producers ADD COLUMN guard INTEGER;
UPDATE producers SET guard = 3 * (epoch % 1000003) + 5 * (seq % 1000003) + 7 * (first % 1000003) + 11 * (last % 1000003);

CREATE TRIGGER watermarks_never_fall BEFORE UPDATE ON producers
  WHEN OLD.epoch IS NOT NULL AND (NEW.epoch IS NULL OR NEW.seq IS NULL
    OR (NEW.epoch, NEW.seq) <= (OLD.epoch, OLD.seq))
BEGIN SELECT RAISE (ABORT, 'watermarks never fall'); END;

CREATE TABLE appends (
  pos      INTEGER PRIMARY KEY,
  stream   INTEGER NOT NULL,
  last     INTEGER NOT NULL,
  n        INTEGER NOT NULL CHECK (n > 0),
  at       INTEGER NOT NULL,
  aid      BLOB NOT NULL,
  producer INTEGER,
  epoch    INTEGER,
  pseq     INTEGER,
  crc      INTEGER NOT NULL,
  data     BLOB NOT NULL,
  UNIQUE (stream, last)
) STRICT;

INSERT INTO appends (pos, stream, last, n, at, aid, producer, epoch, pseq, crc, data)
  SELECT pos, stream, last, n, at, aid, producer, epoch, pseq, crc, data FROM chunks ORDER BY pos;

-- Its triggers go with it, and ask no questions.
DROP TABLE chunks;

-- One row is many appends of one stream, one after the other: a msgpack list of [at, aid or nil, the append's data].
-- `crc` covers stream, last and data, and that of an append its time too.
CREATE TABLE chunks (
  pos    INTEGER PRIMARY KEY,
  stream INTEGER NOT NULL REFERENCES streams (id),
  last   INTEGER NOT NULL,
  n      INTEGER NOT NULL CHECK (n > 0),
  crc    INTEGER NOT NULL,
  data   BLOB NOT NULL,
  UNIQUE (stream, last)
) STRICT;

-- A row that does not continue its stream, or not its producer, or would replace another, is passed over. RETURNING
-- tells the writer which rows went in; it then asks why the others did not. (REPLACE would delete a row without asking
-- the DELETE triggers.)
CREATE TRIGGER an_append_continues_its_stream_and_its_producer BEFORE INSERT ON appends
  WHEN NEW.last - NEW.n IS NOT (
      SELECT head FROM streams WHERE id = NEW.stream
      AND guard = 3 * (head % 1000003) + 5 * (floor % 1000003) + 7 * (origin % 1000003))
    OR (NEW.producer IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM producers AS p WHERE p.id = NEW.producer AND p.stream = NEW.stream
      AND p.guard IS 3 * (p.epoch % 1000003) + 5 * (p.seq % 1000003) + 7 * (p.first % 1000003) + 11 * (p.last % 1000003) AND (
        (NEW.epoch = p.epoch AND NEW.pseq = p.seq + 1) OR (NEW.pseq = 0 AND (p.epoch IS NULL OR NEW.epoch > p.epoch)))))
    OR (NEW.pos > 0 AND EXISTS (SELECT 1 FROM appends WHERE pos = NEW.pos))
BEGIN SELECT RAISE (IGNORE); END;

CREATE TRIGGER an_append_moves_head_and_watermark AFTER INSERT ON appends
BEGIN
  UPDATE streams SET head = NEW.last, guard = guard + 3 * (NEW.last % 1000003 - head % 1000003) WHERE id = NEW.stream;
  UPDATE producers SET epoch = NEW.epoch, seq = NEW.pseq, first = NEW.last - NEW.n + 1, last = NEW.last,
    guard = 3 * (NEW.epoch % 1000003) + 5 * (NEW.pseq % 1000003) 
      + 7 * ((NEW.last - NEW.n + 1) % 1000003) + 11 * (NEW.last % 1000003)
    WHERE id = NEW.producer;
END;

CREATE TRIGGER events_never_change BEFORE UPDATE ON appends
BEGIN SELECT RAISE (ABORT, 'events never change'); END;

CREATE TRIGGER events_go_only_below_the_floor_or_into_a_chunk BEFORE DELETE ON appends
  WHEN OLD.last > (SELECT floor FROM streams WHERE id = OLD.stream)
    AND ((SELECT last - n FROM chunks WHERE stream = OLD.stream AND last >= OLD.last ORDER BY last LIMIT 1)
      <= OLD.last - OLD.n) IS NOT TRUE
BEGIN SELECT RAISE (ABORT, 'events go only below the floor or into a chunk'); END;

-- Packing is one statement too: a chunk that would not hold just what it replaces, because another process was faster or
-- the floor has risen, is passed over; the others take the place of their appends.
CREATE TRIGGER a_chunk_holds_what_it_replaces BEFORE INSERT ON chunks
  WHEN NEW.n IS NOT (
      SELECT sum(n) FROM appends WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last <= NEW.last)
    OR NEW.last <= (SELECT floor FROM streams WHERE id = NEW.stream)
    OR EXISTS (SELECT 1 FROM chunks WHERE pos = NEW.pos)
BEGIN SELECT RAISE (IGNORE); END;

CREATE TRIGGER a_chunk_takes_the_place_of_its_appends AFTER INSERT ON chunks
BEGIN DELETE FROM appends WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last <= NEW.last; END;

CREATE TRIGGER chunks_never_change BEFORE UPDATE ON chunks
BEGIN SELECT RAISE (ABORT, 'chunks never change'); END;

CREATE TRIGGER chunks_go_only_below_the_floor BEFORE DELETE ON chunks
  WHEN OLD.last > (SELECT floor FROM streams WHERE id = OLD.stream)
BEGIN SELECT RAISE (ABORT, 'chunks go only below the floor'); END;
