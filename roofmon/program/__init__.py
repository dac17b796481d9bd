"""The program that `roofmon run` starts: in a pseudo-terminal, its output in a file and in a pane."""
