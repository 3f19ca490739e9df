-- A result as the program wrote it, where that is not the text that a screen shows.
ALTER TABLE results ADD COLUMN written TEXT;
