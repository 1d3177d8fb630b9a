"""What directories of runs hold, and what their files say: read without torch, so a list of runs is there at once."""
