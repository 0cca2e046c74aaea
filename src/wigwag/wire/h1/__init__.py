"""HTTP/1.1: the server's and the client's half of a connection, both without I/O."""
