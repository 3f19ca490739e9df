-- Messages get their number at once, and their words are indexed when there is time, before the next search at latest:
-- for a short message the index costs more than all its other rows, and now and then merges for 50 ms.
-- Those that are indexed are in message_words_docsize; a new number is above all of them.
DROP TRIGGER message_kept;
CREATE TRIGGER message_kept AFTER INSERT ON messages BEGIN
    INSERT INTO message_numbers (session, position) VALUES (new.session, new.position);
END;

DROP TRIGGER message_forgotten;
CREATE TRIGGER message_forgotten BEFORE DELETE ON messages BEGIN
    INSERT INTO message_words (message_words, rowid, session, text)
        SELECT 'delete', number, session, text FROM message_numbers JOIN message_texts USING (session, position)
        WHERE session = old.session AND position = old.position
        AND EXISTS (SELECT 1 FROM message_words_docsize WHERE id = number);
    DELETE FROM message_numbers WHERE session = old.session AND position = old.position;
END;
