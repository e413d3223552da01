"""From a folder of records and journals to a report: the only module here that reads and writes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from episafe.deployment.follower import Follower
from episafe.deployment.journal_folder import AUDITED, FORMAT, holds_journal, read_head
from episafe.reports import bandit_metrics, run_page
from episafe.reports.metrics import Curves, Summary, curves, summarise
from episafe.reports.panels import charts
from episafe.reports.record_groups import Group, is_bandit, software
from episafe.reports.report_page import to_html
from episafe.reports.run_page import ShownRun
from episafe.reports.run_pictures import change_pictures, observed_change
from episafe.reports.tables import to_csv, to_latex, to_markdown
from episafe.runs.record import EPISODES, Record, is_complete, load_settings
from episafe.storage.atomic_files import write_text

RECORDS, FIGURES = "records", "figures"
RUN, ROW = 10, 250  # what a page of one run, and a row of figures, cost beside reading one record


def write_report(
    folder: str | Path, latex: bool = False, on_progress: Callable[[float], object] = lambda share: None
) -> Path:
    """Writes report.html into `folder` and returns its path; of runs with exact values also summary.csv, summary.md and
    figures/.

    Args:
        folder: has its runs in records/, or right inside, or is itself one: a record, or the journal of a session or of
            a run, finished or not. One run gets a page of its own; several with exact values are compared. Of several,
            unfinished simulations are left out, and the report says how many; a damaged one is a DamagedFile.
        latex: whether to write the table as summary.tex too, for the booktabs package.
        on_progress: called now and then with the share that is done, by what reading and drawing cost.

    Example:
        >>> from episafe.reports.report import write_report
        >>> write_report("results")  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    folder = Path(folder)
    found = _run_folders(folder)
    alone = len(found) == 1
    finished = [path for path in found if is_complete(path)]
    lived = [path for path in found if path not in finished and holds_journal(path) and (alone or _is_live(path))]
    if not finished and not lived:
        raise ValueError(
            f"{folder} holds no finished record: give a folder with records/<name>/run.toml in it, as record.save "
            "writes them, or the folder of es.open or es.run(…, folder=…); or finish the runs first"
        )
    settings = {path: load_settings(path) for path in finished}
    rows = len({Group.said_by(said).place for said in settings.values()})
    read = (len(found) + RUN) / (len(found) + RUN + ROW * rows)
    summaries, drawn_from, rounds, exact = _compared(settings, _part(on_progress, 0.0, 0.5 * read))
    shown = [path for path in [*finished, *lived] if alone or path not in exact]
    runs = [_run(path, _part(on_progress, 0.5 * read, read)) for path in shown]
    drawn = charts(summaries, drawn_from)
    if summaries:
        from episafe.reports.paper_figures import write_figures  # drawing libraries take a while to import

        write_figures(drawn, folder / FIGURES, _part(on_progress, read, 1.0))
        write_text(folder / "summary.csv", to_csv(summaries))
        write_text(folder / "summary.md", to_markdown(summaries))
    if summaries and latex:
        write_text(folder / "summary.tex", to_latex(summaries))
    bandits = bandit_metrics.section(rounds, folder)
    if summaries and not alone:
        left_out = {"unfinished": len(found) - len(finished) - len(lived)}
        page = to_html(summaries, drawn, software(settings.values()), left_out, bandits, run_page.sections(runs))
    else:
        page = run_page.to_html(f"Run in {folder.name}" if alone else f"Runs in {folder.name}", runs)
    path = folder / "report.html"
    write_text(path, page)
    return path


def _part(on_progress: Callable[[float], object], start: float, end: float) -> Callable[[float], object]:
    """Progress of what is the part of it all from one share to another."""
    return lambda share: on_progress(start + (end - start) * share)


def _compared(
    settings: dict[Path, dict[str, str]], on_progress: Callable[[float], object]
) -> tuple[list[Summary], list[Curves], list[bandit_metrics.Rounds], set[Path]]:
    """Summaries and curves of the records with exact values, group by group, and which they are."""
    summaries, drawn_from, rounds, exact = list[Summary](), list[Curves](), list[bandit_metrics.Rounds](), set[Path]()
    groups = sorted({Group.said_by(said) for said in settings.values()}, key=Group.order)
    for rank, group in enumerate(groups):  # one at a time: all of a long experiment may not fit into memory
        loaded = {path: Record.load(path) for path, said in settings.items() if Group.said_by(said) == group}
        records = [record for record in loaded.values() if record.is_exact]
        exact |= {path for path, record in loaded.items() if record.is_exact}
        if records:
            summaries += summarise(records)
            drawn_from += curves(records)
            if is_bandit(records[0].settings):
                rounds.append(bandit_metrics.rounds(group, records))
        on_progress((rank + 1) / len(groups))
    return summaries, drawn_from, rounds, exact


def _run(path: Path, on_progress: Callable[[float], object]) -> ShownRun:
    """A folder as a run to be shown: with a journal, also its halts and what changed."""
    title = path.name or str(path)
    if not holds_journal(path):
        return ShownRun(title, Record.load(path))
    if is_complete(path) and (written := read_head(path, AUDITED)["format"]) != FORMAT:
        note = f"Its journal has format {written}, of which only the trail is read, by `episafe audit`: no halts here."
        return ShownRun(title, Record.load(path), notes=[note])
    journal = Follower(path, keeps_paths=True)
    journal.read_on(on_progress=on_progress)
    record = Record.load(path) if is_complete(path) else journal.record
    if record is None:
        remedy = "nothing can be reported of it" if journal.is_live else f"go on with `episafe resume {path}`"
        raise ValueError(f"{path} has no {'deployment' if journal.is_live else 'episode'} yet: {remedy}")
    paths, task = journal.columns.paths[: len(record.sources)], journal.columns.task
    table = None if task is None else task.safe_policy.table()
    change = observed_change(paths, record.incumbent_acted().tolist(), table)
    notes = [] if is_complete(path) or journal.is_live else [f"Unfinished: go on with `episafe resume {path}`."]
    missing = int(np.isnan(record.reward_totals).sum()) if journal.is_live else 0  # type: ignore[arg-type]
    if missing:
        have = "has no report yet: it is" if missing == 1 else "have no report yet: they are"
        notes.append(f"{missing:,} of {len(record.sources):,} deployments {have} in no mean.")
    maps = change_pictures(*change) if change else ()
    return ShownRun(title, record, journal.columns.halts, maps, notes, journal.earlier)


def _is_live(path: Path) -> bool:
    return bool(read_head(path)["kind"] == "live")


def _run_folders(folder: Path) -> Sequence[Path]:
    """Folders that hold a run, finished or not, in the order of their names."""
    if is_complete(folder) or holds_journal(folder):
        return [folder]
    inside = folder / RECORDS if (folder / RECORDS).is_dir() else folder
    if not inside.is_dir():
        return []
    return sorted(p for p in inside.iterdir() if (p / EPISODES).is_file() or is_complete(p) or holds_journal(p))
