"""Build the site with `make docs`; the API pages and the command line come from the package."""

import re
from importlib import import_module
from pathlib import Path

import episafe

project, author = "episafe", "the episafe authors"
project_copyright = author
release = version = episafe.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
extensions += ["sphinxcontrib.bibtex", "sphinx-mathjax-offline"]  # formulas need no network
bibtex_bibfiles, bibtex_default_style, bibtex_reference_style = ["references.bib"], "plain", "author_year"
exclude_patterns = ["_build"]
html_theme, html_title = "furo", "episafe"
html_show_sphinx, html_copy_source = False, False
html_static_path = ["static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
default_role = "code"  # docstrings use single backticks
autodoc_typehints, autodoc_member_order, autodoc_class_signature = "signature", "bysource", "mixed"
autodoc_preserve_defaults, python_maximum_signature_line_length = True, 80
autodoc_type_aliases = {
    name: name for name in ("Array", "IntArray", "State", "PerLimit", "Settings", "Move", "Support")
}
napoleon_numpy_docstring, napoleon_use_ivar, napoleon_attr_annotations = False, True, False

GROUPS = {  # of the API reference, by the package that a name is defined in
    "Problems": ("problems", "envs", "gym"),
    "Policies, plans, episodes": ("core",),
    "The recommended agent": ("certify",),
    "Simulations": ("simulation",),
    "Live sessions and data": ("session", "data"),
    "Algorithms of the literature": ("algorithms", "linear"),
}
MODULES = {
    "certify": "Certifiers",
    "bandits": "Linear bandits",
    "features": "Features",
    "testing": "Checks for your own classes",
}
OTHERS = (
    "session.session.Session",
    "session.deployment.Deployment",
    "session.audit.Audit",
    "data.prove.Proof",
)  # returned
BASES = ("core.agent.Certifier", "core.agent.Proposer")  # to be subclassed
API = Path(__file__).parent / "reference" / "api"


def write_page(name: str, thing: object, qualified: str) -> str:
    """Write the page of a public name; return its row in the list."""
    kind = "autoclass" if isinstance(thing, type) else "autofunction"
    members = "   :members:\n   :inherited-members: Exception, Protocol, tuple\n" if kind == "autoclass" else ""
    text = f"# {name}\n\n```{{eval-rst}}\n.. {kind}:: {qualified}\n{members}```\n"
    page = API / f"{name.replace('.', '-')}.md"
    if not page.exists() or page.read_text() != text:  # an unchanged page is not built again
        page.write_text(text)
    first = (thing.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"| [{name}](api/{page.name}) | {first} |"


def list_public_names() -> str:
    """Write one page per public class and function; return the tables of the API page."""
    API.mkdir(exist_ok=True)
    tables = {title: [] for title in [*GROUPS, *MODULES.values()]}
    for name in episafe.__all__:
        found = getattr(episafe, name)
        if name in MODULES:
            for part in found.__all__ if hasattr(found, "__all__") else [n for n in vars(found) if n[:6] == "check_"]:
                thing = getattr(found, part)
                named = thing.__name__ == part
                path = f"episafe.{name}.{part}" if named else f"{thing.__module__}.{thing.__qualname__}"
                tables[MODULES[name]].append(write_page(f"{name}.{part}", thing, path))
            continue
        package = found.__module__.split(".")[1]
        title = next(title for title, packages in GROUPS.items() if package in packages)
        tables[title].append(write_page(name, found, f"{found.__module__}.{found.__qualname__}"))
    for title, names in (("Returned by these", OTHERS), ("Interfaces", BASES)):
        tables[title] = []
        for qualified in names:
            module, _, name = qualified.rpartition(".")
            thing = getattr(import_module(f"episafe.{module}"), name)
            tables[title].append(write_page(f"{module.split('.')[0]}.{name}", thing, f"episafe.{qualified}"))
    return "\n\n".join(
        f"## {title}\n\n| name | what it is |\n|---|---|\n" + "\n".join(rows) for title, rows in tables.items()
    )


def list_commands() -> str:
    """Return the help of every command of the command line."""
    from typer.main import get_command

    from episafe.cli import app

    parts = []
    for name, command in get_command(app).commands.items():
        rows = [f"## {name}", (command.help or "").strip(), "| argument or option | meaning |\n|---|---|"]
        for one in command.params:
            if one.name == "help":
                continue
            shown = (
                f"`{', '.join(one.opts)}`" if one.opts[0].startswith("-") else f"`{(one.metavar or one.name).upper()}`"
            )
            default = (
                "" if one.default in (None, False, (), []) or callable(one.default) else f" Default: `{one.default}`."
            )
            rows[-1] += (
                f"\n| {shown}{' (required)' if one.required else ''} | {getattr(one, 'help', None) or ''}{default} |"
            )
        rows.append(f"```bash\n{(command.epilog or '').removeprefix('Example: ')}\n```" if command.epilog else "")
        parts.append("\n\n".join(rows))
    return "\n\n".join(parts)


def fill_pages(app, docname, source):
    """Put generated tables into their pages."""
    for page, mark, made in (
        ("reference/api", "<!-- public names -->", list_public_names),
        ("reference/command-line", "<!-- commands -->", list_commands),
    ):
        if docname == page:
            source[0] = source[0].replace(mark, made())


def escape_formulas(app, what, name, thing, options, lines):
    """Escape what reStructuredText would read as markup: docstrings are plain text with backticks."""
    for n, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = re.split(r"(`[^`]+`)", line)
            lines[n] = "".join(part if part.startswith("`") else re.sub(r"([|*_])", r"\\\1", part) for part in parts)


def setup(app):
    """Write the API pages before files are listed; connect the generated tables and the escapes of docstrings."""
    list_public_names()
    app.connect("source-read", fill_pages)
    app.connect("autodoc-process-docstring", escape_formulas, priority=100)  # before napoleon
