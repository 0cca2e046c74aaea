"""What each JSONLogic operator means, one family per file, with the corner cases of flagd's own engine.

May live here: functions from evaluated values to a value, and builders for operators that evaluate lazily.
May not: anything about flags, variants or documents.
"""
