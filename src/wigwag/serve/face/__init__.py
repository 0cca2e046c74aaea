"""What every long-running command shares: its ports, its limits, its signals and its exit code."""
