"""What a service needs to have its flags driven from outside: options, environment, log levels."""
