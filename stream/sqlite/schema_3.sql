-- Version 3: every change of a stream has a number of its file, so that whoever asks what has moved looks at nothing else.
--
-- Numbers only rise, and none is given twice, but to all streams of one batch: they changed at once. Writers of a file take
-- turns, so who has seen a number has seen all below it.
-- An older program that has the file open is refused by name whatever it appends, adopts, truncates, deletes or reads.
ALTER TABLE streams ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
UPDATE streams SET changed = id WHERE head > 0;
CREATE INDEX streams_by_change ON streams (changed);

ALTER TABLE appends RENAME COLUMN pseq TO producer_seq;
ALTER TABLE appends RENAME COLUMN aid TO append_id;

-- Where a stream stood before it changed with `number`: of each 1,024 changes of the file its first one is marked. The
-- others of so few are told by whoever has seen them. `guard` follows from the other numbers, as elsewhere.
CREATE TABLE marks (
  stream INTEGER NOT NULL,
  number INTEGER NOT NULL,
  head   INTEGER NOT NULL,
  guard  INTEGER NOT NULL,
  PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;

DROP TRIGGER an_append_moves_head_and_watermark;
CREATE TRIGGER an_append_moves_head_and_watermark AFTER INSERT ON appends
BEGIN
  UPDATE streams SET head = NEW.last, guard = guard + 3 * (NEW.last % 1000003 - head % 1000003),
    changed = (SELECT max(changed) FROM streams) + 1
    WHERE id = NEW.stream;
  UPDATE producers SET epoch = NEW.epoch, seq = NEW.producer_seq, first = NEW.last - NEW.n + 1, last = NEW.last,
    guard = 3 * (NEW.epoch % 1000003) + 5 * (NEW.producer_seq % 1000003)
      + 7 * ((NEW.last - NEW.n + 1) % 1000003) + 11 * (NEW.last % 1000003)
    WHERE id = NEW.producer;
END;

DROP TRIGGER head_floor_and_origin_never_fall;
CREATE TRIGGER head_floor_and_origin_never_fall_and_each_change_is_numbered BEFORE UPDATE ON streams
  WHEN NEW.head < OLD.head OR NEW.floor < OLD.floor OR NEW.origin < OLD.origin
    OR NEW.id <> OLD.id OR NEW.name <> OLD.name OR NEW.changed <= OLD.changed
BEGIN SELECT RAISE (ABORT, 'head, floor and origin never fall, and each change is numbered'); END;

CREATE TRIGGER the_first_of_many_changes_is_marked AFTER UPDATE ON streams
  WHEN NEW.changed >> 10 > OLD.changed >> 10 OR OLD.changed = 0
BEGIN
  INSERT INTO marks VALUES (NEW.id, NEW.changed, OLD.head,
    3 * (NEW.id % 1000003) + 5 * (NEW.changed % 1000003) + 7 * (OLD.head % 1000003));
END;

-- REPLACE would delete a row without asking the DELETE triggers.
CREATE TRIGGER marks_are_never_replaced BEFORE INSERT ON marks
  WHEN EXISTS (SELECT 1 FROM marks WHERE stream = NEW.stream AND number = NEW.number)
BEGIN SELECT RAISE (ABORT, 'marks are never replaced'); END;

CREATE TRIGGER marks_never_change BEFORE UPDATE ON marks
BEGIN SELECT RAISE (ABORT, 'marks never change'); END;

CREATE TRIGGER marks_are_never_forgotten BEFORE DELETE ON marks
BEGIN SELECT RAISE (ABORT, 'marks are never forgotten'); END;

-- In `batches` one row holds what was appended to many streams at once.
--
-- The rules are asked once for all of them, and not row by row: one commit of a hundred appends costs half as much. What is
-- large or comes alone is still a row of `appends`. Batches are few: before long they are packed into chunks.

-- `heads`: {"stream": its new head << 16 | how many events are new, …}; `marks`: {"producer": epoch << 42 | number << 12 |
-- events of its append, which is the last of its stream here, …}. `places` says where in `data` each append lies, with a
-- checksum of its own; `again` is the same once more, so that one damaged byte of it harms nobody.
CREATE TABLE batches (
  pos    INTEGER PRIMARY KEY,
  heads  TEXT NOT NULL CHECK (heads <> '{}' AND heads = json(heads)),
  marks  TEXT NOT NULL CHECK (marks = json(marks)),
  places BLOB NOT NULL,
  again  BLOB NOT NULL,
  data   BLOB NOT NULL
) STRICT;

-- A batch goes in as a whole or is passed over: each of its streams must be where it says, each producer too.
CREATE TRIGGER a_batch_continues_its_streams_and_its_producers BEFORE INSERT ON batches
  WHEN NOT (json_valid(NEW.heads) AND json_valid(NEW.marks))
    OR (SELECT count(*) FROM json_each(NEW.heads) AS h CROSS JOIN streams AS s ON s.id = CAST(h.key AS INTEGER)
      WHERE h.type = 'integer' AND h.value & 65535 > 0 AND s.head = (h.value >> 16) - (h.value & 65535)
      AND s.guard = 3 * (s.head % 1000003) + 5 * (s.floor % 1000003) + 7 * (s.origin % 1000003))
    IS NOT (SELECT count(*) FROM json_each(NEW.heads))
    OR (NEW.marks <> '{}' AND
      (SELECT count(*) FROM json_each(NEW.marks) AS m CROSS JOIN producers AS p ON p.id = CAST(m.key AS INTEGER)
      WHERE m.type = 'integer' AND m.value & 4095 > 0 AND instr(NEW.heads, '"' || p.stream || '":') > 0
      AND p.guard IS 3 * (p.epoch % 1000003) + 5 * (p.seq % 1000003) + 7 * (p.first % 1000003) + 11 * (p.last % 1000003)
      AND ((m.value >> 42 = p.epoch AND (m.value >> 12) & 1073741823 = p.seq + 1)
        OR ((m.value >> 12) & 1073741823 = 0 AND (p.epoch IS NULL OR m.value >> 42 > p.epoch))))
    IS NOT (SELECT count(*) FROM json_each(NEW.marks)))
    OR (NEW.pos > 0 AND EXISTS (SELECT 1 FROM batches WHERE pos = NEW.pos))
BEGIN SELECT RAISE (IGNORE); END;

-- All its streams get one number, which rises by as many as they are: so few streams have changed since one that is marked.
CREATE TRIGGER a_batch_moves_heads_and_watermarks AFTER INSERT ON batches
BEGIN
  UPDATE streams SET head = h.head, guard = guard + 3 * (h.head % 1000003 - streams.head % 1000003),
    changed = (SELECT max(changed) FROM streams) + (SELECT count(*) FROM json_each(NEW.heads))
    FROM (SELECT CAST(key AS INTEGER) AS id, value >> 16 AS head FROM json_each(NEW.heads)) AS h
    WHERE streams.id = h.id;
  SELECT RAISE (ABORT, 'a batch names each stream once')
    WHERE changes() <> (SELECT count(*) FROM json_each(NEW.heads));
  UPDATE producers SET epoch = m.epoch, seq = m.seq, first = m.last - m.n + 1, last = m.last,
    guard = 3 * (m.epoch % 1000003) + 5 * (m.seq % 1000003) + 7 * ((m.last - m.n + 1) % 1000003) + 11 * (m.last % 1000003)
    FROM (SELECT p.id AS id, m.value >> 42 AS epoch, (m.value >> 12) & 1073741823 AS seq, m.value & 4095 AS n, s.head AS last
      FROM json_each(NEW.marks) AS m CROSS JOIN producers AS p ON p.id = CAST(m.key AS INTEGER)
      CROSS JOIN streams AS s ON s.id = p.stream) AS m
    WHERE NEW.marks <> '{}' AND producers.id = m.id;
  SELECT RAISE (ABORT, 'a batch names each producer once')
    WHERE NEW.marks <> '{}' AND changes() <> (SELECT count(*) FROM json_each(NEW.marks));
END;

CREATE TRIGGER batches_never_change BEFORE UPDATE ON batches
BEGIN SELECT RAISE (ABORT, 'batches never change'); END;

CREATE TRIGGER batches_go_only_below_the_floors_or_into_chunks BEFORE DELETE ON batches
  WHEN EXISTS (
    SELECT 1 FROM json_each(OLD.heads) AS h JOIN streams AS s ON s.id = CAST(h.key AS INTEGER)
    WHERE h.value >> 16 > s.floor
    AND ((SELECT last - n FROM chunks WHERE stream = s.id AND last >= h.value >> 16 ORDER BY last LIMIT 1)
      <= (h.value >> 16) - (h.value & 65535)) IS NOT TRUE  -- one chunk has all of it, as a rule, or several have
    AND (SELECT sum(min(c.last, h.value >> 16) - max(c.last - c.n, (h.value >> 16) - (h.value & 65535), s.floor))
      FROM chunks AS c WHERE c.stream = s.id AND c.last > max((h.value >> 16) - (h.value & 65535), s.floor)
      AND c.last - c.n < h.value >> 16)
    IS NOT (h.value >> 16) - max((h.value >> 16) - (h.value & 65535), s.floor))
BEGIN SELECT RAISE (ABORT, 'batches go only below the floors or into chunks'); END;

-- A chunk comes of appends and holds just what they held, or of batches: then it lies where neither appends nor chunks are,
-- but for chunks that it takes in as a whole. Any other is passed over.
DROP TRIGGER a_chunk_holds_what_it_replaces;
CREATE TRIGGER a_chunk_holds_what_it_replaces BEFORE INSERT ON chunks
  WHEN NEW.last <= (SELECT floor FROM streams WHERE id = NEW.stream)
    OR EXISTS (SELECT 1 FROM chunks WHERE pos = NEW.pos)
    OR (NEW.n IS NOT (SELECT sum(n) FROM appends WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last <= NEW.last)
      AND (NEW.last > (SELECT head FROM streams WHERE id = NEW.stream)
        OR EXISTS (SELECT 1 FROM appends WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last <= NEW.last)
        OR NEW.last > (SELECT last - n FROM appends WHERE stream = NEW.stream AND last > NEW.last ORDER BY last LIMIT 1)
        OR EXISTS (SELECT 1 FROM chunks WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last <= NEW.last
          AND (last - n < NEW.last - NEW.n OR last = NEW.last))
        OR NEW.last > (SELECT last - n FROM chunks WHERE stream = NEW.stream AND last > NEW.last ORDER BY last LIMIT 1)))
BEGIN SELECT RAISE (IGNORE); END;

DROP TRIGGER a_chunk_takes_the_place_of_its_appends;
CREATE TRIGGER a_chunk_takes_the_place_of_what_it_holds AFTER INSERT ON chunks
BEGIN
  DELETE FROM appends WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last <= NEW.last;
  DELETE FROM chunks WHERE stream = NEW.stream AND last > NEW.last - NEW.n AND last < NEW.last;
END;

DROP TRIGGER chunks_go_only_below_the_floor;
CREATE TRIGGER chunks_go_only_below_the_floor_or_into_another BEFORE DELETE ON chunks
  WHEN OLD.last > (SELECT floor FROM streams WHERE id = OLD.stream)
    AND ((SELECT last - n FROM chunks WHERE stream = OLD.stream AND last > OLD.last ORDER BY last LIMIT 1)
      <= OLD.last - OLD.n) IS NOT TRUE
BEGIN SELECT RAISE (ABORT, 'chunks go only below the floor or into another'); END;
