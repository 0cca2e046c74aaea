"""What happens after a flag has changed: notifiers, log lines, and values that expire."""
