"""One plan on a page: the sentences of `episafe explain`, and the sum behind its check as a picture."""

import math

import numpy as np

from episafe.deployment.explanation import Explanation, percent
from episafe.reports.page_frame import render
from episafe.reports.pictures import BLUE, GREY, RED, Band, Guide, Mark, Picture, Scale

WIDTH, HEIGHT = 480, 230
AREA = "Each policy is as wide as its probability and as high as its proved utility: the area is the lower bound."


def check_picture(why: Explanation) -> Picture | None:
    """The check as a picture: what each policy adds, the bound and the threshold; None where nothing was checked, or
    nobody kept what is proved of each policy: two lines alone would say less than the sentence does."""
    if not math.isfinite(why.bound) or not math.isfinite(why.threshold):
        return None
    known = all(math.isfinite(part.proved) for part in why.parts) and not why.is_incumbent
    if not known and not why.is_incumbent:
        return None
    marks = _areas(why) if known else []
    colour = GREY if why.is_incumbent else BLUE
    levels = [
        Guide(why.threshold, RED, "threshold"),
        Guide(why.bound, colour, "refused" if why.is_incumbent else "bound"),
    ]
    heights = [0.0, why.bound, why.threshold, *(part.proved for part in why.parts if known)]
    low, high = min(heights), max(heights)
    room = 0.15 * (high - low) or 0.1
    y = Scale.linear("proved utility", low - (room if low < 0 else 0.0), high + room)
    across = Scale.linear("% of episodes", 0.0, 100.0)
    title = f"Why plan {why.plan} was allowed" if not why.is_incumbent else f"Why plan {why.plan} is the incumbent"
    area = AREA if known else ""
    least = f"Of {why.constraint}, the constraint with the least room." if why.constraint else ""
    caption = f"{area} {least}".strip()
    return Picture(title, across, y, marks, caption=caption, width=WIDTH, height=HEIGHT, levels=levels)


def _areas(why: Explanation) -> list[Mark]:
    """A rectangle for each policy, side by side, in the order of its plan."""
    marks, left = list[Mark](), 0.0
    for part in why.parts:
        right = left + 100 * part.weight
        x, height = np.array([left, right]), np.full(2, part.proved)
        colour = GREY if part.name == "incumbent" else BLUE
        said = f"{part.name}: {percent(part.weight)} × {part.proved:.4g}"
        marks.append(Band(x, np.zeros(2), height, colour, said, 0.3))
        left = right
    return marks


def to_html(folder: str, why: Explanation) -> str:
    """The page."""
    picture = check_picture(why)
    return render(
        "explanation.html",
        title=f"Plan {why.plan} of {folder}",
        sentences=why.sentences,
        pictures=[] if picture is None else [picture],
    )
