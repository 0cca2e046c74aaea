"""The server: sockets, connections, limits and scheduling. This is where bytes are read and written."""
