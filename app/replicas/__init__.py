"""Several servers on one database: who owns a run, and how servers reach each other through that database."""
