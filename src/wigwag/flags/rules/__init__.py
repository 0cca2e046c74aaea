"""Targeting rules: from their text to closures, and what they cost. `operators` has the meaning of each operator."""
