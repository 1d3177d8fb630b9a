"""Build sdist and wheel, install the wheel into an empty environment, run the README there: `make wheel`."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def blocks(page: Path) -> list[str]:
    """Its Python blocks as printed; those marked py are left out."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python of the empty environment")
    parser.add_argument("--constraints", type=Path, help="a file of versions, for the oldest or the newest ones")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    asked = parser.parse_args()
    for old in asked.out.glob("layerstep-*"):
        old.unlink()
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(asked.out)], cwd=ROOT, check=True)
    [wheel] = asked.out.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run([asked.python, "-m", "venv", str(home / "env")], check=True)
        bin = home / "env" / ("Scripts" if os.name == "nt" else "bin")
        limits = ["-c", str(asked.constraints.resolve())] if asked.constraints else []
        install = [str(bin / "python"), "-m", "pip", "install", "--quiet", *limits]
        if not limits:  # the build of torch that the clone has
            install += ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, str(wheel)], check=True)
        (home / "readme.py").write_text("\n".join(blocks(ROOT / "README.md")))
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        for command in (
            [bin / "layerstep", "--version"],
            [bin / "python", "readme.py"],
            [bin / "layerstep", "identify", "tiny"],
            [bin / "layerstep", "solve", "--steps", "20", "--prompts", "16"],
        ):
            words = [str(word) for word in command]
            print("$", " ".join([Path(words[0]).name, *words[1:]]), flush=True)
            subprocess.run(words, cwd=home, env=clean | {"HOME": folder}, check=True)
    print(f"{wheel.name}: installed and run outside the clone")


if __name__ == "__main__":
    main()
