CREATE TABLE IF NOT EXISTS jobcomp_table (
    jobid INT NOT NULL,
    uid INT UNSIGNED NOT NULL,
    user_name TINYTEXT NOT NULL,
    gid INT UNSIGNED NOT NULL,
    group_name TINYTEXT NOT NULL,
    name TINYTEXT NOT NULL,
    state INT UNSIGNED NOT NULL,
    `partition` TINYTEXT NOT NULL,
    timelimit TINYTEXT NOT NULL,
    starttime INT UNSIGNED NOT NULL DEFAULT 0,
    endtime INT UNSIGNED NOT NULL DEFAULT 0,
    nodelist TEXT,
    nodecnt INT UNSIGNED NOT NULL,
    proc_cnt INT UNSIGNED NOT NULL,
    connect_type TINYTEXT,
    reboot TINYTEXT,
    rotate TINYTEXT,
    maxprocs INT UNSIGNED NOT NULL DEFAULT 0,
    geometry TINYTEXT,
    start TINYTEXT,
    blockid TINYTEXT,
    PRIMARY KEY (jobid, starttime, endtime)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE IF NOT EXISTS jobcomp_positions (
    cluster VARCHAR(255) NOT NULL PRIMARY KEY,
    log_high BIGINT NOT NULL,
    log_low BIGINT NOT NULL,
    position BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
