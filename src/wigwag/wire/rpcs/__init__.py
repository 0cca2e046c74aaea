"""Remote procedure calls over HTTP: gRPC, gRPC-Web and Connect, and the protobuf wire format."""
