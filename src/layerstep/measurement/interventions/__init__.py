"""What a layer does, by writing into it: aligned readers and writers, responses, solvers tried, measured operators."""
