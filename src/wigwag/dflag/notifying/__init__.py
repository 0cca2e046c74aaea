"""What happens after a flag has changed: notifiers, log lines, waiters, and values that expire."""
