INSERT INTO indexing
SELECT b.id, b.queue, b.tenant, b.payload
FROM job_body b
WHERE b.id {among_ids}
