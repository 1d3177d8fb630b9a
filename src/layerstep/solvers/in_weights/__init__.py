"""Iterations on the weights θ of features φ(x): linear regression's own solvers, and those of any kernel.

They minimise |Xθ - y|² + lam |θ|² in θ. Everything they reach is θ = Xᵀw, so that the kernel matrix K = XXᵀ is all they
need, and the same code serves kernels whose features nobody writes down.
"""
