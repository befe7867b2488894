-- Titles of jobs, and what they are found by.

-- How the jobs of a queue are listed, as a program declared it.
CREATE TABLE {schema}.listing (
  queue  text COLLATE "C" NOT NULL PRIMARY KEY,
  title  text NOT NULL,  -- a format of payload fields
  search text NOT NULL   -- JSON: the names of the payload fields that are searched
);

-- The beginnings of words of searchable fields, folded: see store/search.py, which does the same.
CREATE TABLE {schema}.search_term (
  job_id uuid             NOT NULL,
  term   text COLLATE "C" NOT NULL,
  queue  text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  PRIMARY KEY (job_id, term)
);
CREATE INDEX search_found ON {schema}.search_term (queue, tenant, term, job_id);

CREATE FUNCTION {schema}.search_terms(payload text, search text) RETURNS SETOF text
LANGUAGE sql IMMUTABLE AS $terms$
  SELECT DISTINCT substr(v.folded, strpos(' ' || v.folded, ' ' || w.word))
  FROM json_array_elements_text(search::json) AS f(name)
  CROSS JOIN LATERAL (
    SELECT json_typeof(payload::json #> string_to_array(f.name, '.')) AS kind,
      payload::json #>> string_to_array(f.name, '.') AS found
    OFFSET 0
  ) j
  CROSS JOIN LATERAL (
    SELECT btrim(replace(replace(translate(left(j.found, 200),
      E'BDFHJKLMPQRTVWXZAÀÁÂÃÄÅàáâãäåCÇçEÈÉÊËèéêëGĞğIİıÌÍÎÏìíîïNÑñOÒÓÔÕÖØòóôõöøSŞşßUÙÚÛÜùúûüYÝýÿ-_/\\.,;:@#+*()[]"''|·–—…\t\n\r',
      E'bdfhjklmpqrtvwxzaaaaaaaaaaaaaccceeeeeeeeegggiiiiiiiiiiinnnooooooooooooossssuuuuuuuuuyyyy                          '),
      '  ', ' '), '  ', ' ')) AS folded
    OFFSET 0
  ) v
  CROSS JOIN LATERAL unnest(string_to_array(v.folded, ' ')) WITH ORDINALITY AS w(word, n)
  WHERE (j.kind = 'string' OR (j.kind = 'number' AND j.found ~ '^-?[0-9]+$'))
    AND w.word <> '' AND w.n <= 8
$terms$;

CREATE FUNCTION {schema}.index_bodies() RETURNS trigger LANGUAGE plpgsql AS $index$
BEGIN
  IF EXISTS (
    SELECT 1 FROM {schema}.listing l
    WHERE l.search <> '[]' AND l.queue IN (SELECT b.queue FROM added b))
  THEN
    INSERT INTO {schema}.search_term (job_id, term, queue, tenant)
    SELECT b.id, t.term, b.queue, b.tenant
    FROM added b
    JOIN {schema}.listing l ON l.queue = b.queue
    CROSS JOIN LATERAL {schema}.search_terms(b.payload, l.search) AS t(term)
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $index$;
CREATE TRIGGER index_bodies AFTER INSERT ON {schema}.job_body
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {schema}.index_bodies();

CREATE FUNCTION {schema}.index_payload() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = on SET enable_seqscan = on AS $index$  -- not as the guard
BEGIN
  DELETE FROM {schema}.search_term WHERE job_id = NEW.id;
  INSERT INTO {schema}.search_term (job_id, term, queue, tenant)
  SELECT NEW.id, t.term, NEW.queue, NEW.tenant
  FROM {schema}.listing l
  CROSS JOIN LATERAL {schema}.search_terms(NEW.payload, l.search) AS t(term)
  WHERE l.queue = NEW.queue AND l.search <> '[]';
  RETURN NULL;
END $index$;
CREATE TRIGGER index_payload AFTER UPDATE OF payload ON {schema}.job_body
  FOR EACH ROW EXECUTE FUNCTION {schema}.index_payload();

CREATE FUNCTION {schema}.prune_terms() RETURNS trigger LANGUAGE plpgsql AS $index$
BEGIN
  IF EXISTS (SELECT 1 FROM {schema}.search_term) THEN
    DELETE FROM {schema}.search_term WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  END IF;
  RETURN NULL;
END $index$;
CREATE TRIGGER prune_terms AFTER DELETE ON {schema}.job_body
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.prune_terms();
