"""The page: one HTML file from results and figures."""
