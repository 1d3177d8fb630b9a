"""The paper's experiments as values, its figures and tables, and the page that shows them beside ours."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerstep.reproduction.report import Report, reproduce

__all__ = ["Report", "reproduce"]


def __getattr__(name: str) -> Any:
    if name not in __all__:  # figures and page need matplotlib and jinja2; runs and predictions do not
        raise AttributeError(f"layerstep.reproduction has no {name!r}")
    from layerstep.reproduction import report

    return getattr(report, name)
