"""What a report's page weighs: words that are open, all words, bytes, figures; and pictures of it.

python benchmarks/page.py report                        # the numbers, against the limits
python benchmarks/page.py report --pictures FOLDER      # screenshots by chromium: desk and phone, light and dark
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_WORDS, MOST_BYTES = 4500, 3_000_000
WIDTHS = {"desk": 1280, "phone": 390}
SCHEMES = {"light": 1, "dark": 0}  # of Blink's preferredColorScheme


def facts(page: Path) -> dict[str, int]:
    """Counts of a finished page."""
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"(?s)<(svg|script|style|head)\b.*?</\1>", " ", text)
    folded = re.compile(r"(?s)<details[^>]*>(?:(?!<details).)*?</details>")
    opened = plain
    while folded.search(opened):
        opened = folded.sub(" ", opened)
    return {
        "open words": words(opened),
        "all words": words(plain),
        "bytes": page.stat().st_size,
        "figures": text.count("<figure"),
    }


def words(markup: str) -> int:
    return len(re.sub(r"<[^>]+>", " ", markup).split())


def picture(chromium: str, page: Path, file: Path, width: int, height: int, scheme: int, top: int = 0) -> None:
    """The page as a browser of that width shows it, from `top` on. In a frame: no window is as narrow as a phone."""
    with tempfile.TemporaryDirectory() as folder:
        outer = Path(folder) / "outer.html"
        style = f"width: {width}px; height: {height + top}px; border: 0; margin-top: -{top}px; display: block"
        frame = f"<iframe src='{page.resolve().as_uri()}' style='{style}'></iframe>"
        outer.write_text(f"<body style='margin: 0; overflow: hidden'>{frame}")
        flags = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir={folder}/profile"
        subprocess.run(
            [chromium, *flags.split(), f"--window-size={width},{height}", f"--screenshot={file.resolve()}",
             f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=3000", outer.as_uri()],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    page = asked.report / "index.html"
    found = facts(page)
    print(json.dumps(found) if asked.json else "\n".join(f"{name:<12}{count:>12,}" for name, count in found.items()))
    if asked.pictures:
        chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no chromium here")
        asked.pictures.mkdir(parents=True, exist_ok=True)
        for device, width in WIDTHS.items():
            for name, scheme in SCHEMES.items():
                file = asked.pictures / f"page-{device}-{name}.png"
                picture(chromium, page, file, width, asked.height, scheme, asked.top)
                print(file)
    if found["open words"] > MOST_WORDS or found["bytes"] > MOST_BYTES:
        sys.exit(f"more than {MOST_WORDS:,} open words or {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    main()
