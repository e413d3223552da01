"""Build the site with `make docs`; the API reference comes from the docstrings."""

import re

import episafe

project, author = "episafe", "the episafe authors"
project_copyright = author
release = version = episafe.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
extensions += ["sphinxcontrib.bibtex", "sphinx-mathjax-offline"]  # formulas need no network
bibtex_bibfiles, bibtex_default_style, bibtex_reference_style = ["references.bib"], "plain", "author_year"
exclude_patterns = ["_build"]
html_theme, html_title = "furo", "episafe"
html_show_sphinx = False
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
default_role = "code"  # docstrings use single backticks
autodoc_typehints, autodoc_member_order = "description", "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring, napoleon_use_ivar = False, True
napoleon_attr_annotations = False


GROUPS = {  # of the API reference, by the package that a name is defined in
    "Problems": ("problems", "envs", "gym", "core"),
    "Algorithms": ("algorithms", "linear"),
    "The recommended agent": ("certify",),
    "Simulations": ("simulation",),
    "Live sessions and data": ("session", "data"),
}


def list_public_names(app, docname, source):
    """Write every public name into the API reference."""
    if docname != "reference/api":
        return
    parts = []
    for title, packages in GROUPS.items():
        parts += [f"## {title}", "```{eval-rst}"]
        for name in episafe.__all__:
            found = getattr(episafe, name)
            if getattr(found, "__module__", "..").split(".")[1:2] in [[package] for package in packages]:
                kind = "autoclass" if isinstance(found, type) else "autofunction"
                parts += [f".. {kind}:: episafe.{name}", "   :members:" if kind == "autoclass" else "", ""]
        parts.append("```")
    source[0] = source[0].replace("<!-- public names -->", "\n".join(parts))


def escape_formulas(app, what, name, thing, options, lines):
    """Escape what reStructuredText would read as markup: docstrings are plain text with backticks."""
    for n, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = re.split(r"(`[^`]+`)", line)
            lines[n] = "".join(part if part.startswith("`") else re.sub(r"([|*_])", r"\\\1", part) for part in parts)


def setup(app):
    """Connect the list of public names, and the escapes of docstrings."""
    app.connect("source-read", list_public_names)
    app.connect("autodoc-process-docstring", escape_formulas, priority=100)  # before napoleon
