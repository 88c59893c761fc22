CREATE TABLE events (
    id BIGINT NOT NULL PRIMARY KEY,
    cluster BIGINT NOT NULL,
    node VARCHAR(255) NOT NULL,
    start_ms BIGINT NOT NULL,
    end_ms BIGINT,
    form BIGINT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX events_of_node ON events (cluster, node, end_ms);
CREATE INDEX events_by_end ON events (cluster, end_ms);
CREATE TABLE reservations (
    id BIGINT NOT NULL PRIMARY KEY,
    cluster BIGINT NOT NULL,
    resv BIGINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    start_ms BIGINT NOT NULL,
    end_ms BIGINT NOT NULL,
    form BIGINT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX reservations_by_name ON reservations (cluster, name, start_ms);
CREATE INDEX reservations_by_number ON reservations (cluster, resv);
CREATE INDEX reservations_by_end ON reservations (cluster, end_ms);
