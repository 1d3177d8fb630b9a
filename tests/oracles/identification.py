"""U and V as they are defined, in NumPy, one layer and one candidate at a time."""

import numpy as np

RIDGE = 3e-3  # of the mean square of a feature


def residuals(M, A, features, halves):
    """left [B] = sum_n r² and structured [B] = sum_n r r^, r = M - A_t; t and r^ are fitted on the other half.

    M [B, C] and A [T, B, C] are distances to KRR, features [F, B, C], halves two lists of sequences.
    """
    left, structured = np.empty(len(M)), np.empty(len(M))
    for train, test in (halves, halves[::-1]):
        best = int(np.argmin([((M[train] - a[train]) ** 2).sum() for a in A]))
        r = M - A[best]
        P, T = (features[:, part].reshape(len(features), -1) for part in (train, test))
        gram = P @ P.T / P.shape[1] + RIDGE * np.eye(len(P))
        weights = np.linalg.solve(gram, P @ r[train].reshape(-1) / P.shape[1])
        left[test] = (r[test] ** 2).sum(-1)
        structured[test] = (r[test] * (weights @ T).reshape(len(test), -1)).sum(-1)
    return left, structured
