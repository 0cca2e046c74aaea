"""HTTP/2: frames, header compression, flow control, and the server's and the client's half of a connection, all
without I/O."""
