"""From a folder of records to a report: the only module here that reads and writes."""

from pathlib import Path

from episafe.reports import bandit_metrics
from episafe.reports.metrics import curves, summarise
from episafe.reports.panels import charts
from episafe.reports.paper_figures import write_figures
from episafe.reports.record_groups import Group, is_bandit
from episafe.reports.report_page import to_html
from episafe.reports.run_notes import software
from episafe.reports.tables import to_csv, to_latex, to_markdown
from episafe.runs.record import EPISODES, Record, is_complete, load_settings
from episafe.storage.atomic_files import write_text

RECORDS, FIGURES = "records", "figures"


def write_report(folder: str | Path, latex: bool = False) -> Path:
    """Writes report.html, summary.csv, summary.md and figures/ into `folder` and returns the path of report.html.

    Args:
        folder: has its records in records/, or right inside, or is itself one record. Unfinished records are left
            out, and the report says how many; a damaged one is a DamagedFile.
        latex: whether to write the table as summary.tex too, for the booktabs package.

    Example:
        >>> from episafe.reports.report import write_report
        >>> write_report("results")  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    folder = Path(folder)
    found = _record_folders(folder)
    settings = {path: load_settings(path) for path in found if is_complete(path)}
    if not settings:
        raise ValueError(
            f"{folder} holds no finished record: give a folder with records/<name>/run.toml in it, "
            "as record.save writes them, or finish the runs first"
        )
    summaries, drawn_from, rounds, inexact = [], [], [], 0
    groups = sorted({Group.said_by(said) for said in settings.values()}, key=Group.order)
    for group in groups:  # one at a time: all records of a long experiment together may not fit into memory
        loaded = [Record.load(path) for path, said in settings.items() if Group.said_by(said) == group]
        records = [record for record in loaded if record.is_exact]
        inexact += len(loaded) - len(records)
        if records:
            summaries += summarise(records)
            drawn_from += curves(records)
            if is_bandit(records[0].settings):
                rounds.append(bandit_metrics.rounds(group, records))
    if not summaries:
        raise ValueError(
            f"{folder} holds only records without exact values, of problems given by functions: regret and violation "
            "cannot be reported for them; see record.observed()"
        )
    drawn = charts(summaries, drawn_from)
    write_figures(drawn, folder / FIGURES)
    write_text(folder / "summary.csv", to_csv(summaries))
    write_text(folder / "summary.md", to_markdown(summaries))
    if latex:
        write_text(folder / "summary.tex", to_latex(summaries))
    path = folder / "report.html"
    left_out = {"unfinished": len(found) - len(settings), "without exact values": inexact}
    bandits = bandit_metrics.section(rounds, folder)
    write_text(path, to_html(summaries, drawn, software(settings.values()), left_out, bandits))
    return path


def _record_folders(folder: Path) -> list[Path]:
    """Folders that hold a record, finished or not, in the order of their names."""
    if is_complete(folder):
        return [folder]
    inside = folder / RECORDS if (folder / RECORDS).is_dir() else folder
    if not inside.is_dir():
        return []
    return sorted(path for path in inside.iterdir() if (path / EPISODES).is_file() or is_complete(path))
