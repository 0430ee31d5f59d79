"""The site also shows what lies outside docs/: the gallery, the notebook, CONTRIBUTING.md and CHANGELOG.md.

Links stay as they work in the repository; here they are turned to where the site has the files.
"""

import re
from pathlib import Path

from docs_examples import escaped
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/*.ipynb",
    "gallery/*.*",
    "gallery/pages/*.md",
    "gallery/badges/*.svg",
    "gallery/verdicts/*.md",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """From docs/ out of it (`../gallery/`), and from outside into docs/ (`docs/`)."""
    markdown = re.sub(r"\]\(\.\./(?=gallery/|examples/|CONTRIBUTING|CHANGELOG)", "](", markdown)
    return escaped(re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown))
