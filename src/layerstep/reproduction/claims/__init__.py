"""The paper's claims, checked against numbers."""
