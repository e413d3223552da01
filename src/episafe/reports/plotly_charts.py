"""Charts for the screen: the panels of a chart as one plotly figure; a click in the legend acts on all of them."""

from html import escape

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.io import to_html
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from episafe.reports.panels import NUM_TICKS, Chart, Line, Panel
from episafe.types import Array, IntArray

HEIGHT = 440  # pixels
CONFIG = {
    "displaylogo": False, "responsive": True, "displayModeBar": "hover",
    "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
}  # fmt: skip
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def script() -> str:
    """The code of plotly.js, to be inlined once."""
    return str(get_plotlyjs())


def fragment(chart: Chart, name: str) -> str:
    """The chart as a piece of HTML that needs `script` before it; `name` is unique in the page."""
    return str(to_html(_figure(chart), full_html=False, include_plotlyjs=False, div_id=name, config=CONFIG))


def _figure(chart: Chart) -> go.Figure:
    titles = [panel.title for panel in chart.panels]
    figure = make_subplots(1, len(titles), subplot_titles=titles, horizontal_spacing=0.06)
    for column, panel in enumerate(chart.panels, start=1):
        for line in panel.lines:
            figure.add_traces(_traces(panel, line, in_legend=column == 1), rows=1, cols=column)
        _set_axes(figure, panel, column)
    figure.update_layout(
        template="plotly_white", height=HEIGHT, margin={"l": 55, "r": 15, "t": 58, "b": 95},
        font={"family": FONT, "size": 12, "color": "#222222"}, hovermode="x unified", hoverlabel={"font": {"size": 11}},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
    )  # fmt: skip
    figure.update_annotations(font_size=13)
    return figure


def _set_axes(figure: go.Figure, panel: Panel, column: int) -> None:
    axis = panel.axis
    if panel.rounds:
        figure.update_xaxes(type="log", dtick=1, row=1, col=column)
    title = "round" if panel.rounds else "episode"
    figure.update_xaxes(title_text=title, title_standoff=6, tickformat="~s", hoverformat=",", row=1, col=column)
    figure.update_yaxes(range=axis.ends, nticks=NUM_TICKS, tickformat=",", zerolinecolor="#999999", row=1, col=column)
    if axis.unit:
        ticks = axis.ticks()
        figure.update_yaxes(tickvals=axis.position(ticks), ticktext=[f"{y:,g}" for y in ticks], row=1, col=column)
    if panel.remark:
        number = column if column > 1 else ""  # plotly calls its first axes x and y
        figure.add_annotation(
            text="<br>".join(map(escape, panel.remark)), xref=f"x{number} domain", yref=f"y{number} domain",
            x=0.02, y=0.01, xanchor="left", yanchor="bottom", showarrow=False, font_size=11, align="left",
        )  # fmt: skip


def _traces(panel: Panel, line: Line, in_legend: bool) -> list[go.Scatter]:
    """The band, where there is one, under the mean; hovering tells true values, whatever the axis."""
    curve, style, position = line.curve, line.style, panel.axis.position
    band = bool(np.isfinite(curve.high).all())
    mean = go.Scatter(
        x=_compact(curve.episodes),
        y=_compact(position(curve.mean)),
        name=escape(line.label),
        legendgroup=line.label,
        showlegend=in_legend,
        mode="lines+markers" if style.marker else "lines",
        line={"color": style.colour, "dash": style.dash, "width": style.width},
        marker={"symbol": style.marker or "circle", "size": 7, "maxdisplayed": 9},
        customdata=_compact(np.column_stack([curve.mean, curve.low, curve.high])),
        hovertemplate="%{customdata[0]:,.4~g}"
        + (" (%{customdata[1]:,.4~g} to %{customdata[2]:,.4~g})" if band else ""),
    )
    return [_band(panel, line), mean] if band else [mean]


def _band(panel: Panel, line: Line) -> go.Scatter:
    curve, position = line.curve, panel.axis.position
    red, green, blue = (int(line.style.colour[i : i + 2], 16) for i in (1, 3, 5))
    return go.Scatter(
        x=_compact(np.concatenate([curve.episodes, curve.episodes[::-1]])),
        y=_compact(np.concatenate([position(curve.low), position(curve.high)[::-1]])),
        fill="toself", fillcolor=f"rgba({red},{green},{blue},0.15)", line={"width": 0}, mode="lines",
        legendgroup=line.label, showlegend=False, hoverinfo="skip",
    )  # fmt: skip


def _compact(values: Array | IntArray) -> NDArray[np.float32]:
    """Seven digits are more than a screen shows, and halve the file."""
    return values.astype(np.float32)
