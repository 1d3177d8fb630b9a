"""Run the notebooks from their first cell to their last, outside the clone: `make notebooks`.

    python tests/notebooks.py [NAME ...] [--out FOLDER]

Those in notebooks/ stay as they are, without outputs; --out keeps what was run.
"""

import argparse
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


def run(file: Path, folder: Path) -> float:
    """Execute a copy of the notebook in `folder`; seconds."""
    start = time.perf_counter()
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    nbformat.write(notebook, folder / file.name)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    files = [file for file in sorted(FOLDER.glob("*.ipynb")) if not asked.names or file.stem in asked.names]
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            print(f"{file.stem}: {run(file, folder):.0f} s", flush=True)


if __name__ == "__main__":
    main()
