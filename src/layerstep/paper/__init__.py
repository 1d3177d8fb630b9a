"""The paper's experiments as values, its figures and tables, and the page that shows them beside ours."""

from layerstep.paper.report import Report, reproduce

__all__ = ["Report", "reproduce"]
