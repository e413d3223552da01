"""The site: `make docs` builds it from these pages, offline; the API reference comes from the docstrings."""

import inspect
import json
import re
from typing import Any

from docutils import nodes
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.util.osutil import relative_uri

import episafe

project, author = "episafe", "the episafe authors"
project_copyright = author
release = version = episafe.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # notebooks are read as Markdown: see as_markdown
exclude_patterns = ["_build"]
html_theme, html_title = "furo", "episafe"
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
html_show_sphinx = False
html_static_path, html_css_files, templates_path = ["_static"], ["site.css"], ["_templates"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
autodoc_typehints, autodoc_member_order = "none", "bysource"
autodoc_preserve_defaults = True  # as the source has them: Radius(), and no <function <lambda>>
napoleon_numpy_docstring, napoleon_use_ivar, napoleon_attr_annotations = False, True, False
suppress_warnings = ["myst.xref_missing"]  # files outside docs/ are no pages; tests check every link
TOPICS = {  # of the API reference, by the part of the package that a name is defined in
    "Problems and policies": ("problems", "envs", "gym"),
    "Agents, and what they are built with": ("agents", "learning"),
    "Sessions, journals and audits": ("deployment", "monitors"),
    "Runs, records and forecasts": ("runs", "experiments"),
    "Logs": ("logs",),
    "Types and errors": ("types", "errors"),
}
NUMBER = re.compile(r"(?:[\d\s.,%±−–→+<>≤≥≈×·~()/-]|none|never|\b(?:s|ms|MB|GB|MiB|of|to)\b)*")  # no other words
SEAM, LONG = re.compile(r"(::|[._/=(]+)(?=\w{3})"), 20  # where a name may be broken, if it has more characters
FIRST_LINK = re.compile(r"^\|[^\[\n]*\[[^\]]*\]\(([\w-]+)\.md\)", re.MULTILINE)  # of a table's row, to a page beside it
FEW = 12  # lines of code that are not split over two printed pages
EMPHASIS = re.compile(r"((?<![\w*])\*\w[^*]*\w\*(?![\w*]))")  # as Markdown and reStructuredText have it
MODULES = {"Certifiers": "episafe.certify", "Bandits": "episafe.bandits", "Features": "episafe.problems.features"}


def public_names(app: Any, docname: str, source: list[str]) -> None:
    """Write every public name into the API reference, classes first."""
    if docname != "api":
        return
    left = [name for name in episafe.__all__ if not inspect.ismodule(getattr(episafe, name))]
    parts = []
    for title, rooms in TOPICS.items():
        names = [name for name in left if _room(name) in rooms]
        left = [name for name in left if name not in names]
        parts.append(f"## {title}\n\n{_listed('episafe', names)}")
    parts.append(f"## Others\n\n{_listed('episafe', left)}" if left else "")
    for title, module in MODULES.items():
        found = __import__(module, fromlist=["x"])
        names = getattr(found, "__all__", None) or [
            name for name, thing in vars(found).items() if inspect.isclass(thing) and thing.__module__ == module
        ]
        parts.append(f"## {title}: `{module}`\n\n{_listed(module, names)}")
    source[0] = source[0].replace("<!-- public names -->", "\n\n".join(parts))


def _room(name: str) -> str:
    """The part of the package that a public name is defined in."""
    return f"{getattr(getattr(episafe, name), '__module__', '')}..".split(".")[1]


def as_markdown(app: Any, docname: str, source: list[str]) -> None:
    """A notebook as Markdown: its words, its code, and below that what it printed and drew."""
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    parts = [f"*An executed notebook: [download]({docname.split('/')[-1]}.ipynb).*"]
    for cell in json.loads(source[0])["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            if "image/png" in shown:
                parts.append(
                    f"![What the cell above draws](data:image/png;base64,{''.join(shown['image/png']).strip()})"
                )
            elif said := "".join(output.get("text", shown.get("text/plain", ""))):
                kind = "none" if re.search(r"\S {2,}\S", said) else "text"  # a table is moved sideways, and not wrapped
                parts.append(f"```{kind}\n{said.rstrip()}\n```")
    first, note = parts[1], parts[0]
    source[0] = "\n\n".join([first.replace("\n", f"\n\n{note}\n", 1), *parts[2:]])


def pages_below(app: Any, docname: str, source: list[str]) -> None:
    """Examples and decisions stand below the table that lists them, and lead to it, to the one before and the next."""
    if docname in ("examples/README", "decisions/README"):
        names = FIRST_LINK.findall(source[0])
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


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
    """Docstrings are plain English with Markdown's backticks; what else reStructuredText would obey is escaped.

    Examples stay as they are, with what they print, up to the next empty line; so do formulas, which are indented after
    a colon and an empty line, and keep their lines. A property's words begin after an empty comment: napoleon would
    read what stands before a colon in the first of them as a type.
    """
    letter = r"^(\s*(?:[\w, ]+: )?)(\w\.)(?=\s|$)"  # "threshold: b." is no list that begins with b
    example, formula = False, -1
    for n, line in enumerate(lines):
        if formula >= 0 and (not line.strip() or _indent(line) > formula):
            continue
        example, formula = bool(line.strip()) and (example or line.lstrip().startswith(">>>")), -1
        if not example:
            escaped = re.sub(letter, r"\1\\\2", line)
            lines[n] = "".join(map(_plain, re.split(r"(`[^`]+`)", escaped)))
        if line.endswith(":") and _is_formula(line, lines[n + 1 : n + 3]):
            lines[n], formula = f"{lines[n]}:", _indent(line)
    if what == "property":
        lines[:0] = ["..", ""]


def _is_formula(line: str, following: list[str]) -> bool:
    """Whether an empty line and a deeper one follow, which is no item of a list and no example."""
    if len(following) < 2 or following[0].strip():
        return False
    return _indent(following[1]) > _indent(line) and not following[1].lstrip().startswith(("- ", ">>>"))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain(part: str) -> str:
    if part.startswith("`") and part.endswith("`") and len(part) > 1:
        return f"`{part}`"
    return "".join(
        piece if EMPHASIS.fullmatch(piece) else re.sub(r"([|*_])", r"\\\1", piece) for piece in EMPHASIS.split(part)
    )


def number_columns(app: Any, doctree: nodes.document) -> None:
    """Columns of a table that hold numbers alone, or nothing, are marked as such, to be right-aligned and whole."""
    for group in doctree.findall(nodes.tgroup):
        rows = [list(row.findall(nodes.entry)) for row in group.findall(nodes.row)]
        for column in zip(*rows, strict=True):
            said = [entry.astext() for entry in column[1:]]
            if all(map(NUMBER.fullmatch, said)) and any(re.search(r"\d", one) for one in said):
                for entry in column:
                    entry["classes"] += ["number", *(["several"] if ", " in entry.astext() else [])]


def short_blocks(app: Any, doctree: nodes.document) -> None:
    """Code of few lines is marked as such, to be whole on paper."""
    for block in doctree.findall(nodes.literal_block):
        if len(block.astext().splitlines()) <= FEW:
            block["classes"].append("short")


def whole_percents(app: Any, doctree: nodes.document) -> None:
    """A number and its % stand on one line."""
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.literal | nodes.FixedTextElement | nodes.math | nodes.math_block):
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text)))


def open_pictures(app: Any, doctree: nodes.document, docname: str) -> None:
    """A picture that is no link yet is one to itself at its full size: small words in it are read there."""
    for picture in list(doctree.findall(nodes.image)):
        if not isinstance(picture.parent, nodes.reference):
            file = f"{app.builder.imagedir}/{app.env.images[picture['uri']][1]}"
            link = nodes.reference(internal=True, refuri=relative_uri(app.builder.get_target_uri(docname), file))
            link["classes"].append("picture")
            picture.replace_self(link)
            link += [picture, nodes.inline(text="Open the picture")]


def seams(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Names in code are whole, and long ones are broken where a word of theirs ends, after dots and underscores."""
    if "body" in context:
        context["body"] = re.sub(r'<span class="pre">([^<]*)</span>', _with_seams, context["body"])


def _with_seams(code: re.Match[str]) -> str:
    """A word of code: marked as whole, or with a seam, <wbr>, at every place where it may be broken."""
    if len(code[1]) <= LONG:
        return f'<span class="pre whole">{code[1]}</span>'
    seamed = SEAM.sub(r"\g<0><wbr>", code[1])
    return f'<span class="pre">{seamed}</span>'


def setup(app: Any) -> None:
    """What happens on the way. Pictures of notebooks are files, too: browsers follow no link to data."""
    StandaloneHTMLBuilder.supported_data_uri_images = False
    app.connect("doctree-read", number_columns)
    app.connect("doctree-read", short_blocks)
    app.connect("doctree-read", whole_percents)
    app.connect("doctree-resolved", open_pictures)
    app.connect("html-page-context", seams)
    app.connect("source-read", public_names)
    app.connect("source-read", as_markdown)
    app.connect("source-read", pages_below)
    app.connect("autodoc-process-docstring", as_rst, priority=100)  # before napoleon
