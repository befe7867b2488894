-- The audit log as a chain: each line holds its number in it and a hash over itself and the line
-- before, so that a line that was deleted or changed is noticed. The head is the number and the hash
-- of the newest line, and the lock under which lines are added one after the other. Lines from before
-- this migration have neither: the first line of the chain holds a digest of all of them.

ALTER TABLE {schema}.audit ADD COLUMN seq bigint, ADD COLUMN hash text COLLATE "C";

CREATE TABLE {schema}.audit_head (
  id   smallint NOT NULL PRIMARY KEY CHECK (id = 1),
  seq  bigint   NOT NULL,
  hash text COLLATE "C" NOT NULL
);

-- The next line of the chain, or a copy of a whole chain, which comes before its head.
CREATE FUNCTION {schema}.audit_chained() RETURNS trigger LANGUAGE plpgsql AS $guard$
DECLARE
  head_seq bigint;
BEGIN
  SELECT seq INTO head_seq FROM {schema}.audit_head;
  IF FOUND AND (NEW.hash IS NULL OR NEW.seq IS DISTINCT FROM head_seq + 1) THEN
    RAISE EXCEPTION 'kesin: an audit line is the next of its chain' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $guard$;
CREATE TRIGGER audit_chained BEFORE INSERT ON {schema}.audit
  FOR EACH ROW EXECUTE FUNCTION {schema}.audit_chained();

CREATE FUNCTION {schema}.audit_head_kept() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  RAISE EXCEPTION 'kesin: the head of the audit log only goes on' USING ERRCODE = 'check_violation';
END $guard$;
CREATE TRIGGER audit_head_kept BEFORE UPDATE ON {schema}.audit_head FOR EACH ROW
  WHEN (NEW.seq NOT BETWEEN OLD.seq AND OLD.seq + 1 OR (NEW.seq = OLD.seq AND NEW.hash <> OLD.hash))
  EXECUTE FUNCTION {schema}.audit_head_kept();
CREATE TRIGGER audit_head_stays BEFORE DELETE OR TRUNCATE ON {schema}.audit_head
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.audit_head_kept();
