INSERT INTO {schema}.compaction (queue) VALUES (%(queue)s) RETURNING merged
