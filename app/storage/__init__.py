"""The database: rows and one protocol, SQLite behind it, stored files, principals, the state of the kill switch."""
