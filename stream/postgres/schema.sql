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
) WITH (fillfactor = 70);
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
) WITH (fillfactor = 70);

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
ALTER TABLE appends ALTER COLUMN data SET STORAGE EXTERNAL;

-- Sealed envelopes of projector states.
CREATE TABLE snapshots (
  stream    bigint NOT NULL REFERENCES streams (id),
  projector text COLLATE "C" NOT NULL,
  last_seq  bigint NOT NULL,
  envelope  bytea NOT NULL,
  UNIQUE (stream, projector, last_seq)
);

-- Who this store is: one row.
CREATE TABLE store (incarnation text NOT NULL);

-- Where a stream stood before it changed with `number`: of each 1,024 changes its first one is marked.
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

-- Whoever listens is told that there is something to look at.
CREATE FUNCTION next_change() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_notify('tailfold_' || current_schema, '');
  UPDATE feed SET number = number + 1 RETURNING number;
$$;

CREATE FUNCTION a_stream_only_rises_and_each_change_is_numbered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM streams_now AS n FULL JOIN streams_before AS b ON b.id = n.id
    WHERE (n.head >= b.head AND n.floor >= b.floor AND n.origin >= b.origin AND n.name = b.name AND n.changed > b.changed)
      IS NOT TRUE)
  THEN
    RAISE EXCEPTION 'head, floor and origin never fall, and each change is numbered';
  END IF;
  INSERT INTO marks SELECT n.id, n.changed, b.head,
    3 * (n.id % 1000003) + 5 * (n.changed % 1000003) + 7 * (b.head % 1000003)
  FROM streams_now AS n JOIN streams_before AS b ON b.id = n.id WHERE n.changed >> 10 > b.changed >> 10 OR b.changed = 0;
  RETURN NULL;
END $$;
CREATE TRIGGER a_stream_only_rises AFTER UPDATE ON streams
  REFERENCING OLD TABLE AS streams_before NEW TABLE AS streams_now
  FOR EACH STATEMENT EXECUTE FUNCTION a_stream_only_rises_and_each_change_is_numbered();

CREATE FUNCTION events_go_only_below_the_floor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' OR OLD.last > (SELECT floor FROM streams WHERE id = OLD.stream) THEN
    RAISE EXCEPTION 'events never change, and go only below the floor';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON appends FOR EACH ROW EXECUTE FUNCTION events_go_only_below_the_floor();
