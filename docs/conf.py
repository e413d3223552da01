"""The site: `make docs` builds it from these pages, offline; the API reference comes from the docstrings."""

import inspect
import re
from typing import Any

import episafe

project, author = "episafe", "the episafe authors"
release = version = str(episafe.versions()["episafe_version"])
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme, html_title = "furo", "episafe"
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
autodoc_typehints, autodoc_member_order = "none", "bysource"
napoleon_numpy_docstring, napoleon_use_ivar, napoleon_attr_annotations = False, True, False
suppress_warnings = [
    "myst.xref_missing",
    "toc.not_included",
]  # files outside docs/ are no pages; tests check every link
MODULES = {"Certifiers": "episafe.certify", "Bandits": "episafe.bandits", "Features": "episafe.problems.features"}


def public_names(app: Any, docname: str, source: list[str]) -> None:
    """Write every public name into the API reference, classes first."""
    if docname != "api":
        return
    parts = [f"## Names of the package\n\n{_listed('episafe', episafe.__all__)}"]
    for title, module in MODULES.items():
        found = __import__(module, fromlist=["x"])
        names = getattr(found, "__all__", None) or [
            name for name, thing in vars(found).items() if inspect.isclass(thing) and thing.__module__ == module
        ]
        parts.append(f"## {title}: `{module}`\n\n{_listed(module, names)}")
    source[0] = source[0].replace("<!-- public names -->", "\n\n".join(parts))


def _listed(module: str, names: list[str]) -> str:
    found = __import__(module, fromlist=["x"])
    lines = []
    for name in sorted(names, key=lambda name: (not inspect.isclass(getattr(found, name)), name.lower())):
        thing = getattr(found, name)
        if inspect.ismodule(thing):
            continue
        kind = "autoclass" if inspect.isclass(thing) else "autofunction" if callable(thing) else "autodata"
        lines += [f".. {kind}:: {module}.{name}", *(["   :members:"] if kind == "autoclass" else []), ""]
    return "```{eval-rst}\n" + "\n".join(lines) + "```"


def as_rst(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain English with Markdown's backticks; what else reStructuredText would obey is escaped."""
    lines[:] = ["".join(map(_plain, re.split(r"(`[^`]+`)", line))) for line in lines]


def _plain(part: str) -> str:
    if part.startswith("`") and part.endswith("`") and len(part) > 1:
        return f"`{part}`"
    return re.sub(r"([|*_])", r"\\\1", part)


def setup(app: Any) -> None:
    """What happens on the way."""
    app.connect("source-read", public_names)
    app.connect("autodoc-process-docstring", as_rst, priority=100)  # before napoleon
