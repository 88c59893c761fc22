-- Statements here commit each by itself: they are begun again after a crash in between, so each may be repeated.
-- Names are compared byte by byte, as in the other databases: no character set, no padding.
CREATE TABLE IF NOT EXISTS clusters (
    id BIGINT NOT NULL PRIMARY KEY,
    name VARBINARY(255) NOT NULL UNIQUE,
    log_high BIGINT NOT NULL,
    log_low BIGINT NOT NULL,
    position BIGINT,
    whole BIGINT NOT NULL
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS jobs (
    cluster BIGINT NOT NULL,
    job BIGINT NOT NULL,
    sluid BIGINT NOT NULL,
    array_job BIGINT,
    het_leader BIGINT,
    uid BIGINT NOT NULL,
    gid BIGINT NOT NULL,
    account VARBINARY(255),
    state VARBINARY(24) NOT NULL,
    since_ms BIGINT NOT NULL,
    start_ms BIGINT,
    end_ms BIGINT,
    cpus BIGINT NOT NULL,
    nodes BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    PRIMARY KEY (cluster, job, sluid),
    KEY jobs_of_array (cluster, array_job),
    KEY jobs_of_het (cluster, het_leader),
    KEY jobs_by_run (cluster, sluid),
    KEY jobs_of_user (cluster, uid, end_ms),
    KEY jobs_in_time (cluster, end_ms, since_ms, job, sluid),
    KEY jobs_by_state (cluster, state)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS steps (
    cluster BIGINT NOT NULL,
    sluid BIGINT NOT NULL,
    step BIGINT NOT NULL,
    task BIGINT NOT NULL,
    progress BIGINT NOT NULL,
    start_ms BIGINT,
    end_ms BIGINT,
    cpus BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    PRIMARY KEY (cluster, sluid, step, task),
    KEY steps_by_end (cluster, end_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS entities (
    kind BIGINT NOT NULL,
    name VARBINARY(1024) NOT NULL,
    form BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    PRIMARY KEY (kind, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS transactions (
    id BIGINT NOT NULL PRIMARY KEY,
    time_ms BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    KEY transactions_by_time (time_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS texts (
    hash VARBINARY(32) NOT NULL PRIMARY KEY,
    body LONGBLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS works (
    cluster BIGINT NOT NULL,
    job BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    hash VARBINARY(32) NOT NULL,
    PRIMARY KEY (cluster, job, kind),
    KEY works_by_text (hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS events (
    id BIGINT NOT NULL PRIMARY KEY,
    cluster BIGINT NOT NULL,
    node VARBINARY(255) NOT NULL,
    start_ms BIGINT NOT NULL,
    end_ms BIGINT,
    form BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    KEY events_of_node (cluster, node, end_ms),
    KEY events_by_end (cluster, end_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS reservations (
    id BIGINT NOT NULL PRIMARY KEY,
    cluster BIGINT NOT NULL,
    resv BIGINT NOT NULL,
    name VARBINARY(255) NOT NULL,
    start_ms BIGINT NOT NULL,
    end_ms BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    KEY reservations_by_name (cluster, name, start_ms),
    KEY reservations_by_number (cluster, resv),
    KEY reservations_by_end (cluster, end_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
