"""Remote documents: `http` and `blob` by polling (`polling`), `grpc` by streaming."""
