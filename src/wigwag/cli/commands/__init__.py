"""One module per command: a frozen record of options and a function that returns an exit code."""
