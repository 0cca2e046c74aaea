"""HTTP/2: frames, header compression, flow control, and the two ends of a connection, all without I/O."""
