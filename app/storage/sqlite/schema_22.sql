-- Where agents meet: apps of MCP servers, and what else comes with them.

-- What an app that shows the result of a call has last said: its state as JSON, and what the next turn is to read of it.
CREATE TABLE app_states (
    session TEXT NOT NULL,
    run     TEXT NOT NULL,
    call    TEXT NOT NULL,
    state   TEXT NOT NULL,
    context TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run, call)
);
CREATE INDEX app_states_of_session ON app_states (session);
