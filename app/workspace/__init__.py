"""Files of a workspace for people: what calls changed in it, what is listed and read over HTTP."""
