"""The HTML of the flags page: one document that loads nothing else."""
