"""Notebooks of docs/notebooks as pages of the site, with what is stored in them; a hook of MkDocs.

A page shows text, code, printed output and pictures, and links to the notebook itself.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any


def to_markdown(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page.

    Args:
        notebook: The content of the file.
        name: The name of the file, without its ending.

    Returns:
        The page as Markdown, and its pictures by their names.
    """
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(text)
            continue
        parts.append(_fenced(text, "python"))
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(_shown(f"![{_title(text)}]({picture})"))
            else:
                printed = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(_shown(_fenced(printed.rstrip("\n"), "text")))
    title, _, rest = "\n\n".join(parts).partition("\n\n")
    link = f"*This page is a notebook that runs: [{name}.ipynb]({name}.ipynb).*"
    return f"{title}\n\n{link}\n\n{rest}\n", pictures


def _fenced(text: str, language: str) -> str:
    return f"````{language}\n{text}\n````"


def _shown(text: str) -> str:
    return f'<div class="output" markdown="block">\n\n{text}\n\n</div>'


def _title(code: str) -> str:
    """What a picture shows, by the title that the code gives it: for those who cannot see it."""
    for mark in ('set_title("', 'title="'):
        if mark in code:
            return code.split(mark, 1)[1].split('"', 1)[0]
    return "What the cell above draws"


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs with the files of the site: adds a page, and its pictures, for each notebook."""
    from mkdocs.structure.files import File

    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        page, pictures = to_markdown(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with the text of each page: links to notebooks lead to their pages."""
    return re.sub(r"(\]\((?!https?:)[^)\s]*notebooks/[\w-]+)\.ipynb", r"\1.md", markdown)
