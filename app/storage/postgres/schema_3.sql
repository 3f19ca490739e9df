-- What a recorded run was made of beside its log, in parts, as compressed JSON. `at` is their time in microseconds.
CREATE TABLE recordings (
    run  TEXT COLLATE "C" NOT NULL,
    at   BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (run, at)
);
