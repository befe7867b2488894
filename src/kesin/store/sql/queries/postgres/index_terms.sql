INSERT INTO {search_term} (job_id, term, queue, tenant)
SELECT b.id, t.term, b.queue, b.tenant
FROM {job_body} b
JOIN {listing} l ON l.queue = b.queue
CROSS JOIN LATERAL {search_terms}(b.payload, l.search) AS t(term)
WHERE b.id {among_ids}
ON CONFLICT DO NOTHING
