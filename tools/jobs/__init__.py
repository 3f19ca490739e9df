"""Background jobs: supervisors that outlive the server, their records and output."""
