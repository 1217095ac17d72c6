-- Version 3: every change of a stream has a number of its file, so that whoever asks what has moved looks at nothing else.
--
-- Numbers only rise, and none is given twice: writers of a file take turns, so who has seen a number has seen all below it.
-- An older program that has the file open is refused by name whatever it appends, adopts, truncates or deletes.
ALTER TABLE streams ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
UPDATE streams SET changed = id WHERE head > 0;
CREATE INDEX streams_by_change ON streams (changed);

ALTER TABLE appends RENAME COLUMN pseq TO producer_seq;

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
