"""Workers: servers of one machine behind one port."""
