"""Pictures of the README and of the documentation, light and dark, from a finished report: `make pictures`.

    python benchmarks/pictures.py report

Each is a figure of the report. The dark one is the same file with another ink and brighter lines.
"""

import sys
from pathlib import Path

from layerstep.plotting import BLUE, INK, ORANGE
from layerstep.reproduction.page.document import CONTEXT, CONTEXT_AT_NIGHT

OUT = Path(__file__).parents[1] / "docs" / "pictures"
FIGURES = ("overview-errors", "walk", "schemes", "convergence-sphere")
DARK = {INK: "#e0e0e0", BLUE: "#56b4e9", ORANGE: "#f0834a", **dict(zip(CONTEXT, CONTEXT_AT_NIGHT, strict=True))}


def dark(svg: str) -> str:
    for light, other in DARK.items():
        svg = svg.replace(light.lower(), other).replace(light, other)
    return svg


def main(report: Path) -> None:
    OUT.mkdir(exist_ok=True)
    for name in FIGURES:
        svg = (report / f"{name}.svg").read_text(encoding="utf-8")
        (OUT / f"{name}-light.svg").write_text(svg, encoding="utf-8")
        (OUT / f"{name}-dark.svg").write_text(dark(svg), encoding="utf-8")
        print(OUT / name)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "report"))
