CREATE TABLE entities (
    kind SMALLINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    form SMALLINT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE transactions (
    id BIGINT NOT NULL PRIMARY KEY,
    time_ms BIGINT NOT NULL,
    form SMALLINT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX transactions_by_time ON transactions (time_ms);
DROP INDEX jobs_by_end;
CREATE INDEX jobs_in_time ON jobs (cluster, end_ms, since_ms, job, sluid);
CREATE TABLE texts (
    hash VARBINARY(32) NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TABLE works (
    cluster BIGINT NOT NULL,
    job BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    hash VARBINARY(32) NOT NULL,
    PRIMARY KEY (cluster, job, kind)
);
CREATE INDEX steps_by_end ON steps (cluster, end_ms);
CREATE INDEX works_by_text ON works (hash);
