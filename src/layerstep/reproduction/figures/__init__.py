"""Figures and tables: each takes numbers and draws them."""
