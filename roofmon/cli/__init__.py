"""The commands, one a file. Importing this package or asking for help imports nothing heavy."""
