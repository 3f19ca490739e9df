"""Runs that outlive their server: what one has left is read from its log and history, and another server goes on.

    startup, or a takeover of another server's runs
        └─> takeover: may it go on? ──no──> its calls answered, its messages placed, its terminal event
                └─yes─> state: where was it? ──> left_off ──> Agent.run(left=...)

The history says which replies and results are whole, the log what the client has seen of the last, cut one. By these:

- a call that was not started is made now; one that was started is made again only if all that it does is read, and is
  answered as interrupted otherwise: its outcome is unknown; one that has become a task of an MCP server is followed on;
- a call that waits for a person waits on, under the same approval;
- half a reply is kept as far as the client has seen it, and the next request goes on from there; a request without a
  visible word is made again;
- the time and the tokens of a run are those that its log has counted; the time without a server does not count.

A run goes on MOST_CRASHES times, so that one which kills its server does not do it for ever.
"""
