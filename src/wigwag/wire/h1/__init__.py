"""HTTP/1.1: the two ends of a connection, both without I/O."""
