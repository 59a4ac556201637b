"""A hook of MkDocs: every notebook in the documentation is also a page, built from its cells."""

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for path in sorted(Path(config.docs_dir).glob("*.ipynb")):
        text = page_of(json.loads(path.read_text(encoding="utf-8")), path.name)
        files.append(File.generated(config, f"{path.stem}-page.md", content=text))
    return files


def page_of(notebook: dict[str, Any], name: str) -> str:
    """Return a notebook as Markdown: its texts, its code, and what cells showed if that is kept."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{text}\n```")
            for output in cell.get("outputs", []):
                shown = output.get("text") or output.get("data", {}).get("text/plain", "")
                parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    title, *rest = parts
    note = f"[Download the notebook]({name}) to run it."
    return "\n\n".join([title, note, *rest]) + "\n"
