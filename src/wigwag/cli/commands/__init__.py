"""One module per command; `cli.main.COMMANDS` lists them. Each has:

Options      a frozen record: its fields are the options (see `wigwag.options`)
HELP         one line, for `wigwag --help`
DESCRIPTION  a paragraph, for `wigwag COMMAND --help`
run          a function from the options to an exit code
ENVIRONMENT  if options may come from variables: their prefix
CONFIG       True if options may come from a config file
ALIASES      old names of options
GO_FLAGS     True if `-name` means `--name`
"""
