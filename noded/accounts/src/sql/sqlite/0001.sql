CREATE TABLE clusters (
    id BIGINT NOT NULL PRIMARY KEY,
    name VARCHAR(64) NOT NULL UNIQUE,
    log_high BIGINT NOT NULL,
    log_low BIGINT NOT NULL,
    position BIGINT,
    whole SMALLINT NOT NULL
);
CREATE TABLE jobs (
    cluster BIGINT NOT NULL,
    job BIGINT NOT NULL,
    sluid BIGINT NOT NULL,
    array_job BIGINT,
    het_leader BIGINT,
    uid BIGINT NOT NULL,
    gid BIGINT NOT NULL,
    account VARCHAR(255),
    state VARCHAR(24) NOT NULL,
    since_ms BIGINT NOT NULL,
    start_ms BIGINT,
    end_ms BIGINT,
    cpus BIGINT NOT NULL,
    nodes BIGINT NOT NULL,
    form SMALLINT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (cluster, job, sluid)
);
CREATE INDEX jobs_of_array ON jobs (cluster, array_job);
CREATE INDEX jobs_of_het ON jobs (cluster, het_leader);
CREATE INDEX jobs_by_run ON jobs (cluster, sluid);
CREATE INDEX jobs_of_user ON jobs (cluster, uid, end_ms);
CREATE INDEX jobs_by_end ON jobs (cluster, end_ms, since_ms);
CREATE INDEX jobs_by_state ON jobs (cluster, state);
CREATE TABLE steps (
    cluster BIGINT NOT NULL,
    sluid BIGINT NOT NULL,
    step BIGINT NOT NULL,
    task BIGINT NOT NULL,
    progress BIGINT NOT NULL,
    start_ms BIGINT,
    end_ms BIGINT,
    cpus BIGINT NOT NULL,
    form SMALLINT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (cluster, sluid, step, task)
);
