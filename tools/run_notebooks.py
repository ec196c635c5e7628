"""Run the notebooks of docs/notebooks in Jupyter, each in an empty folder, and store what comes out.

    python tools/run_notebooks.py                     # all of them
    python tools/run_notebooks.py fraud               # one of them

Needs the extra: pip install 'graphveil[notebooks]'.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def execute(path: Path) -> None:
    """Run one notebook and replace its outputs.

    Args:
        path: The notebook.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    # Without the times and the version of the machine that ran it: a file that changes only if its content does.
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    nbformat.write(notebook, path)


def main() -> None:
    """Run the notebooks that are named, or all."""
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        execute(path)
        print(f"{path.name}: done", flush=True)


if __name__ == "__main__":
    main()
