"""The page of a recording."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, repr=False)
class Report:
    """A self-contained page."""

    html: str

    def __repr__(self) -> str:
        return f"<Report of {len(self.html):,} characters: save(path) writes it, notebooks show it>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file.

        Raises:
            OSError: The file cannot be written.
        """
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        """Shows the page in a notebook, in a frame of its own."""
        page = html.escape(self.html)
        return (
            '<iframe title="orlop" sandbox="allow-scripts" '
            f'style="width:100%;height:720px;border:0" srcdoc="{page}"></iframe>'
        )
