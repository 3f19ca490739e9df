-- Events in the order in which they came, one row for all of a transaction, until they get rows of their own.
-- A line is RUN, SEQ, TYPE and DATA with tabs between them.
CREATE TABLE event_batches (
    number INTEGER PRIMARY KEY,
    events TEXT NOT NULL
);
