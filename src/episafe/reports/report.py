"""From a folder of records to a report: the only module here that reads and writes."""

from pathlib import Path

from episafe.files import write_text
from episafe.reports.figures import write_figures
from episafe.reports.html import to_html
from episafe.reports.metrics import curves, summarise
from episafe.reports.notes import software
from episafe.reports.panels import charts
from episafe.reports.tables import to_csv, to_markdown
from episafe.runs.record import EPISODES, Record, is_complete

RECORDS, FIGURES = "records", "figures"


def write_report(folder: str | Path) -> Path:
    """Writes report.html, summary.csv, summary.md and figures/ into `folder` and returns the path of report.html.

    Args:
        folder: has its records in records/, or right inside, or is itself one record. Unfinished records are left
            out, and the report says how many; a damaged one is a DamagedFile.

    Example:
        >>> from episafe.reports.report import write_report
        >>> write_report("results")  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    folder = Path(folder)
    found = _record_folders(folder)
    records = [Record.load(path) for path in found if is_complete(path)]
    if not records:
        raise ValueError(
            f"{folder} holds no finished record: give a folder with records/<name>/run.toml in it, "
            "as record.save writes them, or finish the runs first"
        )
    inexact = sum(not record.is_exact for record in records)
    records = [record for record in records if record.is_exact]
    if not records:
        raise ValueError(
            f"{folder} holds only records without exact values, of problems given by functions: regret and violation "
            "cannot be reported for them; see record.observed()"
        )
    summaries = summarise(records)
    drawn = charts(summaries, curves(records))
    write_figures(drawn, folder / FIGURES)
    write_text(folder / "summary.csv", to_csv(summaries))
    write_text(folder / "summary.md", to_markdown(summaries))
    path = folder / "report.html"
    left_out = {"unfinished": len(found) - len(records) - inexact, "without exact values": inexact}
    write_text(path, to_html(summaries, drawn, software(records), left_out))
    return path


def _record_folders(folder: Path) -> list[Path]:
    """Folders that hold a record, finished or not, in the order of their names."""
    if is_complete(folder):
        return [folder]
    inside = folder / RECORDS if (folder / RECORDS).is_dir() else folder
    if not inside.is_dir():
        return []
    return sorted(path for path in inside.iterdir() if (path / EPISODES).is_file() or is_complete(path))
