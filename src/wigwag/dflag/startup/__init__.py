"""What a service needs at its start: options, values from the environment and files, log levels."""
