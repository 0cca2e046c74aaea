"""Outputs: directories that hold a part of the newest snapshot (`writer`), swapped in one step (`directory`)."""
