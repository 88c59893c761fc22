-- Rows of before have no value in these columns: what is in them is seen in their bodies. The change is one statement, which is made
-- whole or not, and is left out where it was made before this file was noted as done.
SET @garrick_change = IF(
    (SELECT COUNT(*) FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'jobs' AND column_name = 'part') = 0,
    'ALTER TABLE jobs ADD COLUMN name VARBINARY(255), ADD COLUMN part VARBINARY(255), ADD COLUMN qos VARBINARY(255), ADD COLUMN wckey VARBINARY(255), ADD KEY jobs_by_name (cluster, name, end_ms), DROP KEY jobs_by_state, ADD KEY jobs_by_state (cluster, state, end_ms)',
    'DO 0');
PREPARE garrick_change FROM @garrick_change;
EXECUTE garrick_change;
DEALLOCATE PREPARE garrick_change;
CREATE TABLE IF NOT EXISTS archiving (
    id BIGINT NOT NULL PRIMARY KEY,
    stem LONGBLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
