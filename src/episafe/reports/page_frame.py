"""The frame of every page: templates that escape what they are given, and one file that loads nothing.

A page is a template in templates/ that extends base.html; pictures and tables are macros of pieces.html. The browser
itself refuses every request, so that a page cannot depend on a network (the policy in base.html).
"""

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from episafe.reports.pictures import with_minus


def render(template: str, **values: Any) -> str:
    """The page that a template makes of these values."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """The templates of episafe: what is not known is an error, and no value becomes HTML."""
    made = Environment(
        loader=PackageLoader("episafe.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=tied,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["emphasised"] = emphasised
    made.filters["typed"] = lambda words: typed(tied(words))
    return made


def tied(value: Any) -> Any:
    """Numbers keep their ± and % on the same line, and those below 0 have a minus, not a hyphen."""
    if type(value) is not str:  # Markup is HTML already
        return value
    return with_minus(value).replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")


def emphasised(sentence: str) -> Markup:
    """A sentence with the part before its first colon in bold, and what is typed as it is typed."""
    head, colon, tail = tied(sentence).partition(": ")
    return Markup("<b>{}:</b> {}").format(typed(head), typed(tail)) if colon else typed(head)


def typed(words: str) -> Markup:
    """Words of which those between backquotes are code; options, dates and numbered names are not broken at dashes."""
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words)))
    return Markup(
        re.sub(r"(?<![\w-])(?:--\w[\w-]*|[a-z]+-\d+\b|\d{4}-\d\d-\d\d\b)", r'<span class="option">\g<0></span>', code)
    )
