-- Rows of before have no value in these columns: what is in them is seen in their bodies.
ALTER TABLE jobs ADD COLUMN name TEXT, ADD COLUMN part TEXT, ADD COLUMN qos TEXT, ADD COLUMN wckey TEXT;
CREATE INDEX jobs_by_name ON jobs (cluster, name, end_ms);
DROP INDEX jobs_by_state;
CREATE INDEX jobs_by_state ON jobs (cluster, state, end_ms);
CREATE TABLE archiving (
    id BIGINT NOT NULL PRIMARY KEY,
    stem BYTEA NOT NULL
);
