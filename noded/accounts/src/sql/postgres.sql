CREATE TABLE clusters (
    id BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    log_high BIGINT NOT NULL,
    log_low BIGINT NOT NULL,
    position BIGINT,
    whole BIGINT NOT NULL
);
CREATE TABLE jobs (
    cluster BIGINT NOT NULL,
    job BIGINT NOT NULL,
    sluid BIGINT NOT NULL,
    array_job BIGINT,
    het_leader BIGINT,
    uid BIGINT NOT NULL,
    gid BIGINT NOT NULL,
    account TEXT,
    state TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    start_ms BIGINT,
    end_ms BIGINT,
    cpus BIGINT NOT NULL,
    nodes BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (cluster, job, sluid)
);
CREATE INDEX jobs_of_array ON jobs (cluster, array_job);
CREATE INDEX jobs_of_het ON jobs (cluster, het_leader);
CREATE INDEX jobs_by_run ON jobs (cluster, sluid);
CREATE INDEX jobs_of_user ON jobs (cluster, uid, end_ms);
CREATE INDEX jobs_in_time ON jobs (cluster, end_ms, since_ms, job, sluid);
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
    form BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (cluster, sluid, step, task)
);
CREATE INDEX steps_by_end ON steps (cluster, end_ms);
CREATE TABLE entities (
    kind BIGINT NOT NULL,
    name TEXT NOT NULL,
    form BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE transactions (
    id BIGINT NOT NULL PRIMARY KEY,
    time_ms BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX transactions_by_time ON transactions (time_ms);
CREATE TABLE texts (
    hash BYTEA NOT NULL PRIMARY KEY,
    body BYTEA NOT NULL
);
CREATE TABLE works (
    cluster BIGINT NOT NULL,
    job BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (cluster, job, kind)
);
CREATE INDEX works_by_text ON works (hash);
CREATE TABLE events (
    id BIGINT NOT NULL PRIMARY KEY,
    cluster BIGINT NOT NULL,
    node TEXT NOT NULL,
    start_ms BIGINT NOT NULL,
    end_ms BIGINT,
    form BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX events_of_node ON events (cluster, node, end_ms);
CREATE INDEX events_by_end ON events (cluster, end_ms);
CREATE TABLE reservations (
    id BIGINT NOT NULL PRIMARY KEY,
    cluster BIGINT NOT NULL,
    resv BIGINT NOT NULL,
    name TEXT NOT NULL,
    start_ms BIGINT NOT NULL,
    end_ms BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX reservations_by_name ON reservations (cluster, name, start_ms);
CREATE INDEX reservations_by_number ON reservations (cluster, resv);
CREATE INDEX reservations_by_end ON reservations (cluster, end_ms);
