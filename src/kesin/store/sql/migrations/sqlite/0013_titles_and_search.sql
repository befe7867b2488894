-- Titles of jobs, and what they are found by.

-- How the jobs of a queue are listed, as a program declared it.
CREATE TABLE listing (
  queue  TEXT NOT NULL PRIMARY KEY,
  title  TEXT NOT NULL,  -- a format of payload fields
  search TEXT NOT NULL   -- JSON: the names of the payload fields that are searched
) STRICT, WITHOUT ROWID;

-- The beginnings of words of searchable fields, folded: see store/search.py, which does the same.
CREATE TABLE search_term (
  job_id TEXT NOT NULL,
  term   TEXT NOT NULL,
  queue  TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (job_id, term)
) STRICT, WITHOUT ROWID;
CREATE INDEX search_found ON search_term (queue, tenant, term, job_id);

-- What letters and signs are searched as, and places in a text: lower() of other letters than
-- A to Z depends on how SQLite was built.
CREATE TABLE folding (sign TEXT NOT NULL PRIMARY KEY, plain TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO folding VALUES
  ('B', 'b'), ('D', 'd'), ('F', 'f'), ('H', 'h'), ('J', 'j'), ('K', 'k'), ('L', 'l'), ('M', 'm'),
  ('P', 'p'), ('Q', 'q'), ('R', 'r'), ('T', 't'), ('V', 'v'), ('W', 'w'), ('X', 'x'), ('Z', 'z'),
  ('A', 'a'), ('À', 'a'), ('Á', 'a'), ('Â', 'a'), ('Ã', 'a'), ('Ä', 'a'), ('Å', 'a'), ('à', 'a'),
  ('á', 'a'), ('â', 'a'), ('ã', 'a'), ('ä', 'a'), ('å', 'a'), ('C', 'c'), ('Ç', 'c'), ('ç', 'c'),
  ('E', 'e'), ('È', 'e'), ('É', 'e'), ('Ê', 'e'), ('Ë', 'e'), ('è', 'e'), ('é', 'e'), ('ê', 'e'),
  ('ë', 'e'), ('G', 'g'), ('Ğ', 'g'), ('ğ', 'g'), ('I', 'i'), ('İ', 'i'), ('ı', 'i'), ('Ì', 'i'),
  ('Í', 'i'), ('Î', 'i'), ('Ï', 'i'), ('ì', 'i'), ('í', 'i'), ('î', 'i'), ('ï', 'i'), ('N', 'n'),
  ('Ñ', 'n'), ('ñ', 'n'), ('O', 'o'), ('Ò', 'o'), ('Ó', 'o'), ('Ô', 'o'), ('Õ', 'o'), ('Ö', 'o'),
  ('Ø', 'o'), ('ò', 'o'), ('ó', 'o'), ('ô', 'o'), ('õ', 'o'), ('ö', 'o'), ('ø', 'o'), ('S', 's'),
  ('Ş', 's'), ('ş', 's'), ('ß', 's'), ('U', 'u'), ('Ù', 'u'), ('Ú', 'u'), ('Û', 'u'), ('Ü', 'u'),
  ('ù', 'u'), ('ú', 'u'), ('û', 'u'), ('ü', 'u'), ('Y', 'y'), ('Ý', 'y'), ('ý', 'y'), ('ÿ', 'y'),
  ('-', ' '), ('_', ' '), ('/', ' '), ('\', ' '), ('.', ' '), (',', ' '), (';', ' '), (':', ' '),
  ('@', ' '), ('#', ' '), ('+', ' '), ('*', ' '), ('(', ' '), (')', ' '), ('[', ' '), (']', ' '),
  ('"', ' '), ('''', ' '), ('|', ' '), ('·', ' '), ('–', ' '), ('—', ' '), ('…', ' '),
  (char(9), ' '), (char(10), ' '), (char(13), ' ');
CREATE TABLE place (n INTEGER NOT NULL PRIMARY KEY) STRICT;
INSERT INTO place
WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 200)
SELECT n FROM counted;

-- Bodies that are inserted here are indexed: SQLite has no functions of its own.
CREATE VIEW indexing (job_id, queue, tenant, payload) AS
SELECT id, queue, tenant, payload FROM job_body WHERE FALSE;

CREATE TRIGGER index_terms INSTEAD OF INSERT ON indexing
BEGIN
  INSERT INTO search_term (job_id, term, queue, tenant)
  SELECT NEW.job_id, substr(v.folded, instr(' ' || v.folded, ' ' || w.value)), NEW.queue, NEW.tenant
  FROM (
    SELECT trim(replace(replace(
        -- Letter by letter only where there is more than plain ones.
        CASE WHEN f.text NOT GLOB '*[^a-zA-Z0-9 ]*' THEN lower(f.text) ELSE (
          SELECT group_concat(coalesce(g.plain, substr(f.text, n.n, 1)), '')
          FROM place n LEFT JOIN folding g ON g.sign = substr(f.text, n.n, 1)
          WHERE n.n <= length(f.text)) END,
      '  ', ' '), '  ', ' '), ' ') AS folded
    FROM (
      SELECT replace(replace(replace(replace(replace(substr(
          CASE json_type(NEW.payload, p.path)
          WHEN 'text' THEN NEW.payload ->> p.path
          WHEN 'integer' THEN NEW.payload -> p.path END,
        1, 200), '-', ' '), '_', ' '), '.', ' '), '/', ' '), '@', ' ') AS text
      FROM (
        SELECT '$."' || replace(e.value, '.', '"."') || '"' AS path
        FROM listing l, json_each(l.search) e
        WHERE l.queue = NEW.queue) p
      LIMIT -1  -- each field is read once
    ) f
    LIMIT -1
  ) v, json_each('[' || replace(json_quote(v.folded), ' ', '","') || ']') w
  WHERE v.folded <> '' AND w.key < 8 AND w.value <> ''
  ON CONFLICT DO NOTHING;
END;

-- Triggers of their own: a queue without searchable fields pays for a condition.
CREATE TRIGGER index_body AFTER INSERT ON job_body
WHEN EXISTS (SELECT 1 FROM listing WHERE queue = NEW.queue AND search <> '[]')
BEGIN
  INSERT INTO indexing VALUES (NEW.id, NEW.queue, NEW.tenant, NEW.payload);
END;

CREATE TRIGGER index_payload AFTER UPDATE OF payload ON job_body
WHEN EXISTS (SELECT 1 FROM listing WHERE queue = NEW.queue AND search <> '[]')
BEGIN
  DELETE FROM search_term WHERE job_id = NEW.id;
  INSERT INTO indexing VALUES (NEW.id, NEW.queue, NEW.tenant, NEW.payload);
END;

CREATE TRIGGER prune_terms AFTER DELETE ON job_body
WHEN EXISTS (SELECT 1 FROM search_term WHERE job_id = OLD.id)
BEGIN
  DELETE FROM search_term WHERE job_id = OLD.id;
END;
