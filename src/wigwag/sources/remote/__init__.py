"""Remote documents: HTTP and blobs by polling, gRPC by streaming."""
