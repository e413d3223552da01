"""Text that does no harm where it is shown: on a terminal, in a spreadsheet, in a Markdown table.

Names, reasons and ids come from users, files and other programs. They are shown as they are, but for what a terminal, a
spreadsheet or a renderer would obey.
"""

import unicodedata

KEPT = "\n\t"  # the control characters that only move text
REORDERING = {*"\u200e\u200f\u061c", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}  # of Unicode
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a cell begins that a spreadsheet computes
TEX = str.maketrans({character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
    "≤": r"$\leq$", "×": r"$\times$",
})  # fmt: skip
MARKDOWN = str.maketrans({"\\": "\\\\", "|": "\\|", "`": "\\`", "<": "&lt;"})


def printable(text: str) -> str:
    """The text for a terminal: control characters, C0, DEL and C1, and those that reorder it, as \\x1b and \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character in REORDERING or (unicodedata.category(character) == "Cc" and character not in KEPT):
        return character.encode("unicode_escape").decode()
    return character


def one_line(text: str) -> str:
    """The same on one line, so that it cannot look like lines of somebody else."""
    return printable(" ".join(text.split()))


def csv_cell(value: object) -> str:
    """A cell for spreadsheets: words are never a formula, and numbers are plain decimals with every digit."""
    if isinstance(value, float):
        return decimal(value)
    text = printable(str(value))
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def decimal(value: float) -> str:
    """A number as no power of ten: the fewest digits that read back to the same bits."""
    import numpy as np  # here, because a terminal needs nothing of it

    return np.format_float_positional(value, trim="0") if np.isfinite(value) else repr(float(value))


def markdown_cell(text: str) -> str:
    """A cell of a Markdown table, or a sentence: one line, and no markup of its own."""
    return one_line(text).translate(MARKDOWN)


def latex_cell(text: str) -> str:
    """A cell of a LaTeX table: one line, and no command of its own."""
    return one_line(text).translate(TEX)
