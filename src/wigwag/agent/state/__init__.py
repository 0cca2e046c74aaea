"""Last known good: flags that outlive the process.

`lastgood` is what the agent sees; `keeper` decides when to write, `directory` makes that safe, `file` and `document`
are the formats, and `folder` is the disk.
"""
