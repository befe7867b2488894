-- The audit log as a chain: each line holds its number in it and a hash over itself and the line
-- before, so that a line that was deleted or changed is noticed. The head is the number and the hash
-- of the newest line, and the lock under which lines are added one after the other. Lines from before
-- this migration have neither: the first line of the chain holds a digest of all of them.

ALTER TABLE audit ADD COLUMN seq INTEGER;
ALTER TABLE audit ADD COLUMN hash TEXT;

CREATE TABLE audit_head (
  id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  seq  INTEGER NOT NULL,
  hash TEXT    NOT NULL
) STRICT;

-- The next line of the chain, or a copy of a whole chain, which comes before its head.
CREATE TRIGGER audit_chained BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit_head)
  AND (NEW.hash IS NULL OR NEW.seq IS NOT (SELECT seq + 1 FROM audit_head))
BEGIN
  SELECT RAISE(ABORT, 'kesin: an audit line is the next of its chain');
END;

CREATE TRIGGER audit_head_kept BEFORE UPDATE ON audit_head
WHEN NEW.seq NOT BETWEEN OLD.seq AND OLD.seq + 1 OR (NEW.seq = OLD.seq AND NEW.hash <> OLD.hash)
BEGIN
  SELECT RAISE(ABORT, 'kesin: the head of the audit log only goes on');
END;

CREATE TRIGGER audit_head_stays BEFORE DELETE ON audit_head
BEGIN
  SELECT RAISE(ABORT, 'kesin: the head of the audit log only goes on');
END;

-- OR REPLACE would pass the trigger on deletions.
CREATE TRIGGER audit_head_once BEFORE INSERT ON audit_head
WHEN EXISTS (SELECT 1 FROM audit_head)
BEGIN
  SELECT RAISE(ABORT, 'kesin: the head of the audit log only goes on');
END;
