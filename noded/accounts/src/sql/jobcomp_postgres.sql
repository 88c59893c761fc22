CREATE TABLE IF NOT EXISTS jobcomp_table (
    jobid BIGINT NOT NULL,
    uid BIGINT NOT NULL,
    user_name TEXT NOT NULL,
    gid BIGINT NOT NULL,
    group_name TEXT NOT NULL,
    name TEXT NOT NULL,
    state BIGINT NOT NULL,
    partition TEXT NOT NULL,
    timelimit TEXT NOT NULL,
    starttime BIGINT NOT NULL DEFAULT 0,
    endtime BIGINT NOT NULL DEFAULT 0,
    nodelist TEXT,
    nodecnt BIGINT NOT NULL,
    proc_cnt BIGINT NOT NULL,
    connect_type TEXT,
    reboot TEXT,
    rotate TEXT,
    maxprocs BIGINT NOT NULL DEFAULT 0,
    geometry TEXT,
    start TEXT,
    blockid TEXT,
    PRIMARY KEY (jobid, starttime, endtime)
);
CREATE TABLE IF NOT EXISTS jobcomp_positions (
    cluster TEXT NOT NULL PRIMARY KEY,
    log_high BIGINT NOT NULL,
    log_low BIGINT NOT NULL,
    position BIGINT NOT NULL
);
