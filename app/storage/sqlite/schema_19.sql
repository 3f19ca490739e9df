-- What a recorded run was made of beside its log, in parts, as compressed JSON. `at` is their time in microseconds.
CREATE TABLE recordings (
    run  TEXT NOT NULL,
    at   INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, at)
);
