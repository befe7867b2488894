-- The number of a slot, without a query of its own and without settings: so it becomes part of the
-- guard's statement, and costs an eighth. It answers as before: the first slot of a queue is spelled
-- as its state, any other state/tenant/number, and NULL is any other spelling.
CREATE OR REPLACE FUNCTION {schema}.slot_number(slot text, state text, tenant text) RETURNS integer
LANGUAGE sql IMMUTABLE AS $slot$
  SELECT CASE
    WHEN tenant = '' AND slot = state THEN 1
    WHEN left(slot, length(state) + length(tenant) + 2) = state || '/' || tenant || '/'
      AND substr(slot, length(state) + length(tenant) + 3) ~ '^[1-9][0-9]{0,4}$'
      AND (tenant <> '' OR substr(slot, length(state) + 3) <> '1')
      THEN substr(slot, length(state) + length(tenant) + 3)::integer
  END
$slot$;
ALTER FUNCTION {schema}.slot_number(text, text, text) RESET ALL;
