-- Rows of before have no value in these columns: what is in them is seen in their bodies.
ALTER TABLE jobs ADD COLUMN name VARCHAR(255);
ALTER TABLE jobs ADD COLUMN part VARCHAR(255);
ALTER TABLE jobs ADD COLUMN qos VARCHAR(255);
ALTER TABLE jobs ADD COLUMN wckey VARCHAR(255);
CREATE INDEX jobs_by_name ON jobs (cluster, name, end_ms);
DROP INDEX jobs_by_state;
CREATE INDEX jobs_by_state ON jobs (cluster, state, end_ms);
CREATE TABLE archiving (
    id BIGINT NOT NULL PRIMARY KEY,
    stem BLOB NOT NULL
);
