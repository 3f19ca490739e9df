"""The database: rows and a protocol per aggregate, SQLite behind them, stored files, principals, the kill switch."""
