SELECT (r.ord - 1)::integer AS ord, r.id::uuid AS id{same}
FROM jsonb_array_elements_text(%(items)s::jsonb) WITH ORDINALITY AS r(id, ord)
