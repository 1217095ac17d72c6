-- The log in one schema of a database. This is version 1; what is newer lies beside it, and changes what is here.
--
-- A stream's head, floor and origin live here, apart from its rows, and only rise: numbers are never used again. `changed` is
-- the number of its newest change. `guard` follows from the other numbers of a row: what was changed by hand is noticed.
CREATE TABLE streams (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name    text COLLATE "C" NOT NULL UNIQUE,
  head    bigint NOT NULL DEFAULT 0,
  floor   bigint NOT NULL DEFAULT 0,
  origin  bigint NOT NULL DEFAULT 0,
  guard   bigint NOT NULL DEFAULT 0,
  changed bigint NOT NULL DEFAULT 0,
  CHECK (0 <= origin AND origin <= floor AND floor <= head)
);
CREATE INDEX streams_by_change ON streams (changed);

-- The newest append of every producer: epoch, number, and the seqs it got. NULL until the first append.
CREATE TABLE producers (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  stream bigint NOT NULL REFERENCES streams (id),
  name   text COLLATE "C" NOT NULL,
  epoch  bigint,
  seq    bigint,
  first  bigint,
  last   bigint,
  guard  bigint,
  UNIQUE (stream, name)
);

-- One row is one append: `n` events, the last of them number `last`, as a msgpack list of [type, data]. `append_id` names it,
-- `crc` covers name, number, time and data. No foreign key: it would ask for each row what the statement knows of all.
CREATE TABLE appends (
  stream    bigint NOT NULL,
  last      bigint NOT NULL,
  n         bigint NOT NULL CHECK (n > 0),
  at        bigint NOT NULL,
  append_id bytea NOT NULL,
  crc       bigint NOT NULL,
  data      bytea NOT NULL,
  PRIMARY KEY (stream, last)
);

-- Sealed envelopes of projector states.
CREATE TABLE snapshots (
  stream    bigint NOT NULL REFERENCES streams (id),
  projector text COLLATE "C" NOT NULL,
  last_seq  bigint NOT NULL,
  envelope  bytea NOT NULL,
  UNIQUE (stream, projector, last_seq)
);

-- Who this store is: one row.
CREATE TABLE store (
  one         bigint PRIMARY KEY DEFAULT 1 CHECK (one = 1),
  incarnation text NOT NULL
);

-- Where a stream stood before it changed with `number`: of each 1,024 changes its first one is marked, others may be.
CREATE TABLE marks (
  stream bigint NOT NULL,
  number bigint NOT NULL,
  head   bigint NOT NULL,
  guard  bigint NOT NULL,
  PRIMARY KEY (stream, number)
);

-- Every change of a stream has a number. It is drawn under the lock of this row, which lasts until the change is committed: so
-- numbers become visible in their order, and who has seen one has seen all below it.
CREATE TABLE feed (number bigint NOT NULL);
INSERT INTO feed VALUES (0);

-- Only on PostgreSQL: room is left where rows change, and foreign hands are refused what the statements never do.
ALTER TABLE streams SET (fillfactor = 70);
ALTER TABLE producers SET (fillfactor = 70);
ALTER TABLE appends ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0];
END $$;
CREATE TRIGGER a_stream_only_rises BEFORE UPDATE ON streams FOR EACH ROW
  WHEN ((NEW.id = OLD.id AND NEW.name = OLD.name AND NEW.head >= OLD.head AND NEW.floor >= OLD.floor AND NEW.origin >= OLD.origin
    AND NEW.changed > OLD.changed) IS NOT TRUE)
  EXECUTE FUNCTION never('head, floor and origin never fall, and each change is numbered');

CREATE FUNCTION events_go_only_below_the_floor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' OR OLD.last > (SELECT floor FROM streams WHERE id = OLD.stream) THEN
    RAISE EXCEPTION 'events never change, and go only below the floor';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON appends FOR EACH ROW EXECUTE FUNCTION events_go_only_below_the_floor();
