"""What differs between two sets of flags, and whose answers change."""
