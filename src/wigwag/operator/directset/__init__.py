"""Flags that workloads carry in their own annotations (direct set), and what the operator remarks on all of it.

    workload ─▶ `workload` reviews it, and marks its pod template once ─▶ its pods get an agent
             └▶ `document` checks the flags ─▶ `generated` is the FeatureFlag that holds them ─▶ the agent follows it

`barepod` is the same for pods, `remarks` are texts; all of these are pure. `controller` keeps the FeatureFlags, and
`remarking` writes the remarks.
"""
