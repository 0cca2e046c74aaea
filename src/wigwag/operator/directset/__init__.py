"""Flags that workloads carry in their own annotations (direct set), and what the operator remarks on all of it.

    workload ─▶ `workload` reviews it, and marks its pod template once ─▶ its pods get an agent
             └▶ `document` checks the flags ─▶ `generated` is the FeatureFlag that holds them ─▶ the agent follows it

All of it is pure; the controller is `controllers.directset`. May not live here: reading or writing objects.
"""
