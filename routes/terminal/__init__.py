"""`dragoman chat`: a terminal client of the HTTP API."""
