-- What a search looks at: a message's words, and its calls, which native ones keep apart from the text. A NUL would end
-- the text for SQLite.
CREATE VIEW message_texts AS
    SELECT session, position, CASE WHEN json_valid(message) THEN
        json_extract(replace(message, '\u0000', '\u0020'), '$.text') || COALESCE((
            SELECT group_concat(' ' || json_extract(value, '$.name') || ' ' || json_extract(value, '$.arguments'), '')
            FROM json_each(message, '$.calls')
        ), '')
    ELSE message END AS text FROM messages;

-- The words have numbers of their own, because VACUUM gives the rows of messages others.
CREATE TABLE message_numbers (
    number   INTEGER PRIMARY KEY,
    session  TEXT NOT NULL,
    position INTEGER NOT NULL,
    UNIQUE (session, position)
);
-- No second copy of the texts. The session is a word, too: a search reads no other session's.
CREATE VIRTUAL TABLE message_words USING fts5(session, text, content = '', tokenize = 'unicode61');

CREATE TRIGGER message_kept AFTER INSERT ON messages BEGIN
    INSERT INTO message_numbers (session, position) VALUES (new.session, new.position);
    INSERT INTO message_words (rowid, session, text)
        SELECT number, session, text FROM message_numbers JOIN message_texts USING (session, position)
        WHERE session = new.session AND position = new.position;
END;

CREATE TRIGGER message_forgotten BEFORE DELETE ON messages BEGIN
    INSERT INTO message_words (message_words, rowid, session, text)
        SELECT 'delete', number, session, text FROM message_numbers JOIN message_texts USING (session, position)
        WHERE session = old.session AND position = old.position;
    DELETE FROM message_numbers WHERE session = old.session AND position = old.position;
END;

INSERT INTO message_numbers (session, position) SELECT session, position FROM messages ORDER BY session, position;
INSERT INTO message_words (rowid, session, text)
    SELECT number, session, text FROM message_numbers JOIN message_texts USING (session, position);
