"""What is wrong with a flag document or looks wrong: schema, lint, and where in the text it is."""
