"""The command, as people and scripts meet it: real processes, exit codes, streams."""
