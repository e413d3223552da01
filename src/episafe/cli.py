"""The command line: one function a command. Each imports what it needs, since a compiler takes long to import."""

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import episafe
from episafe.experiments import progress
from episafe.plain_text import printable
from episafe.registry import AGENTS, BANDIT_AGENTS, CERTIFIERS
from episafe.terminal import (
    DAMAGED,
    FAILED,
    UNSAFE,
    Command,
    Commands,
    console,
    echo,
    errors,
    exit_codes,
    on_terminal,
    show,
)
from episafe.tools.named_object import errors_inside, named, named_problem

if TYPE_CHECKING:
    from episafe.experiments.comparisons import Place
    from episafe.experiments.job import Job
    from episafe.runs.record import Record

UNFINISHED = "stopped; run the same command again to finish what is missing"
SHOWN = 10  # failed runs that are told one by one
BEGIN, OWN, VERIFY, COMPARE = "Begin", "Your own system", "Go on and verify", "Compare and measure"  # parts of the help

app = typer.Typer(
    name="episafe",
    cls=Commands,
    help="Improve a policy online while the *expected* utility of every deployed policy stays above a threshold.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(part: str, example: str, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command, in a part of the help and with an example."""
    return app.command(name, cls=Command, rich_help_panel=part, epilog=f"Example: {example}")


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Env = Annotated[str, typer.Option(help="Environment; see `episafe list`.", autocompletion=lambda: _environments())]
Episodes = Annotated[int, typer.Option(min=1, help="Number of episodes.")]
EpisodesEach = Annotated[int, typer.Option(min=1, help="Episodes of each run.")]
Out = Annotated[Path | None, typer.Option(help="Folder for records, figures and the report.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: one a core.")]
On = Annotated[str, typer.Option(help="local, or dask:ADDRESS of a scheduler on a network that you trust.")]
AgentName = Annotated[
    str | None,
    typer.Option(
        help="Agent; see `episafe list`. Default: es.OPSE(task), proved by hindsight or observation.",
        autocompletion=lambda: list(AGENTS),
    ),
]
VariantName = Annotated[str, typer.Option(help="released or text.", autocompletion=lambda: ["released", "text"])]
CertifierName = Annotated[
    str | None,
    typer.Option(help="What opse's plans must pass; see `episafe list`.", autocompletion=lambda: list(CERTIFIERS)),
]
ConstantsName = Annotated[
    str | None,
    typer.Option(
        "--constants",
        help="published, tuned or theory: of --agent opse.",
        autocompletion=lambda: ["published", "tuned", "theory"],
    ),
]
Failures = dict[str, str]


def _environments() -> list[str]:
    from episafe.envs import ENVIRONMENTS

    return list(ENVIRONMENTS)


def say_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        typer.echo(f"episafe {episafe.__version__}")
        raise typer.Exit


@app.callback()
def begin(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", callback=say_version, is_eager=True),
    ] = False,
) -> None:
    """Show what goes wrong beyond the errors below, as Python does, and obey no control character in it."""
    warnings.showwarning = lambda message, *_, **__: errors.say(f"warning: {message}")
    sys.excepthook = lambda *raised: print(printable("".join(format_exception(*raised))), end="", file=sys.stderr)


@command(BEGIN, "`episafe list --json`", "list")
def list_(as_json: AsJson = False) -> None:
    """Show the environments with their options, the agents and the certifiers; the same of bandits."""
    from episafe import envs
    from episafe.envs import bandits

    found: dict[str, dict[str, Any]] = {
        "environments": {name: envs.options_of(name) for name in envs.ENVIRONMENTS},
        "agents": {name: entry.line for name, entry in AGENTS.items()},
        "certifiers": {name: summary for name, (_, summary) in CERTIFIERS.items()},
        "bandit_environments": {name: bandits.options_of(name) for name in bandits.ENVIRONMENTS},
        "bandit_agents": {name: entry.summary for name, entry in BANDIT_AGENTS.items()},
    }
    titles = (
        ("Environments (variants: released, text)", "environment", "options and defaults"),
        ("Agents", "agent", "what it is"),
        ("Certifiers of opse (run --certifier)", "certifier", "what it goes by and what it assumes"),
        ("Bandits (es.bandits.make, episafe bandit)", "environment", "options and defaults"),
        ("Agents of bandits", "agent", "what it is"),
    )
    tables = [Table(*columns, title=title) for title, *columns in titles]
    for table, rows in zip(tables, found.values(), strict=True):
        for name, said in rows.items():
            table.add_row(name, said if isinstance(said, str) else ", ".join(f"{k}={v}" for k, v in said.items()))
    show(found, as_json, tables)


@command(BEGIN, "`episafe run --env inventory --episodes 1000 --seed 3`, or with `--agent opse`, the paper's")
def run(
    env: Env = "tabular",
    agent: AgentName = None,
    episodes: Episodes = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the problem and of the run (separate streams).")] = 0,
    variant: VariantName = "released",
    replan: Annotated[
        str | None,
        typer.Option(help="every, or doubling:GROWTH; default: doubling:0.3 with tuned constants, else every."),
    ] = None,
    certifier: CertifierName = None,
    which: ConstantsName = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A constant, or an option of agent or environment; repeatable."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--monitors", help="Watch what is assumed; an alarm halts. Slower.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for journal, audit trail and record; see resume.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run one agent on one problem and print what it reached."""
    from episafe import envs
    from episafe.experiments import agent_choice as choice
    from episafe.learning.planner import parse_replan
    from episafe.monitors import Monitors
    from episafe.runs.run import run as run_agent

    with exit_codes(partial(_how_to_go_on, out)):
        if ":" in env:
            raise ValueError(
                f"--env {env}: `run` knows what `episafe list` shows; run your own by `episafe sweep`, es.run"
            )
        agent = choice.asked_for(agent, certifier, which, replan)
        _require_new(out)
        constants, own, options = choice.split_changes(env, agent or "opse", choice.parse_changes(changes or []))
        if (which or constants) and agent is not None and not AGENTS[agent].reads_constants:
            asked = f"--constants {which}" if which else f"--set {', '.join(constants)}"
            raise ValueError(f"{agent} reads no constants: leave out {asked}")
        cmdp = envs.make(env, seed, variant, **options)  # type: ignore[arg-type]  # make checks the variant
        agent, settings = agent or choice.recommended(cmdp.task), None
        if AGENTS[agent].reads_constants:
            settings = choice.choose(which or "published", cmdp, agent, episodes, **constants)
        with progress.bar(f"{agent} on {env}", episodes, errors) as advance:
            rule = parse_replan(replan) if replan else None
            built = choice.build_agent(agent, cmdp, settings, rule, num_episodes=episodes, options=own)
            monitors = Monitors(built.task) if watch else None
            record = run_agent(cmdp, built, episodes, seed, monitors=monitors, folder=out, on_progress=advance)
    _show_run(record, as_json, out)


def _how_to_go_on(folder: Path | None) -> str:
    """What somebody who has stopped a run does next."""
    from episafe.deployment.journal_folder import holds_journal

    if folder is None:
        return "stopped; nothing is kept without --out FOLDER"
    if not holds_journal(folder):
        return f"stopped before {folder} was begun: run the same command again"
    return f"stopped; go on with `episafe resume {folder}`"


def _require_new(folder: Path | None) -> None:
    """Refuse a folder that holds a run, finished or not."""
    from episafe.deployment.journal_folder import holds_journal
    from episafe.runs.record import SETTINGS

    if folder is not None and (folder / SETTINGS).exists():
        raise ValueError(f"{folder} holds a record already: choose another --out or delete it")
    if folder is not None and holds_journal(folder):
        raise ValueError(f"{folder} holds a run that was stopped: go on with `episafe resume {folder}`, or delete it")


@command(VERIFY, "`episafe resume mine --episodes 20000`, after `episafe run --out mine`")
def resume(
    folder: Annotated[Path, typer.Argument(help="The --out folder of `episafe run`.")],
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes in all; default: as many as asked for.")] = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was stopped, or make a finished one longer: the record is that of a run never stopped."""
    from episafe.runs.kept_run import aim_of
    from episafe.runs.kept_run import resume as resume_run

    with (
        exit_codes(lambda: f"stopped; go on with the same command: `episafe resume {folder}`"),
        progress.bar(f"resuming {folder}", episodes or aim_of(folder), errors) as advance,
    ):
        record = resume_run(folder, episodes, on_progress=advance)
    _show_run(record, as_json, folder)


@command(VERIFY, "`episafe audit mine --head 3f2a… --html audit.html`")
def audit(
    folder: Annotated[Path, typer.Argument(help="A folder of `episafe run --out` or `es.open`.")],
    head: Annotated[str | None, typer.Option(help="Hash of the last line, as you kept it elsewhere.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="A function that builds the agent, if the folder cannot.")
    ] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write the page to this file too.")] = None,
    episodes: Annotated[
        Path | None,
        typer.Option(help="Write its episodes too, if it is whole: CSV or .parquet, as es.learn_log reads."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the audit trail, recompute every certificate from the recorded episodes, and print what was found.

    What another version deployed must have passed the check, whatever proposed it: the verdict says what was done.
    Exit code 4 if something is damaged, 1 if the agent could not be built or a bound is in doubt.
    """
    from episafe.deployment.audit import audit as audit_folder
    from episafe.deployment.episode_export import export_episodes
    from episafe.reports import audit_page
    from episafe.storage.atomic_files import as_output, write_text

    with exit_codes():
        with progress.bar(f"auditing {folder}: every certificate is made again", 1.0, errors) as advance:
            found = audit_folder(folder, _built(agent) if agent else None, head, advance)
        said = found.as_dict()
        if page is not None:
            write_text(as_output(page), audit_page.as_html(said, found.lines))
        if episodes is not None and found.is_whole:
            export_episodes(folder, episodes, _built(agent).task if agent else None)
    show(said, as_json, lines=list(map(escape, audit_page.as_text(said, found.lines).split("\n"))))
    if not found.is_whole or found.recomputed is None or found.doubts:
        raise typer.Exit(FAILED if found.is_whole else DAMAGED)


def _built(name: str) -> Any:
    """The agent that a function `module:name` of the user builds."""
    build = named(name)
    with errors_inside(name):
        return build()


@command(VERIFY, "`episafe repair mine`, after `episafe audit mine` said that it is damaged")
def repair(
    folder: Annotated[Path, typer.Argument(help="A folder of `episafe run --out` or `es.open` that nobody has open.")],
    as_json: AsJson = False,
) -> None:
    """Keep the longest provable beginning of a damaged journal, put the rest beside it, and say what that costs.

    Nothing is deleted. A live session is halted afterwards, until a person lets it explore again. Exit code 4 if there
    is no beginning that can be proved.
    """
    from episafe.deployment.repair import repair as repair_folder

    with exit_codes(), progress.late_bar(f"reading {folder}", errors) as advance:
        found = repair_folder(folder, advance)
    show(found.as_dict(), as_json, lines=[escape(line) for line in found.lines()])


@command(OWN, "`episafe check shop:problem`, with `problem = es.from_gymnasium(…)` in shop.py")
def check(
    name: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="What es.from_gymnasium returns, or a function.")],
    episodes: Annotated[int, typer.Option(min=10, help="Episodes of the incumbent to play.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the environment and of the incumbent.")] = 0,
    confirm: Annotated[
        list[str] | None,
        typer.Option(metavar="WHAT", help="early-end: that ending early is as safe as it looks. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play your own environment under its incumbent and say what is wrong and how to mend it.

    Fails until every error is mended and everything that only you can know is confirmed.
    """
    from episafe.tools import environment_check as own_problem

    with exit_codes():
        problem = own_problem.load(name)
        with progress.bar(f"playing {episodes} episodes of {name}", episodes, errors) as advance:
            findings = own_problem.check(problem, episodes, seed, confirm or (), advance)
    colours = {"ok": "green", "warning": "yellow", "error": "red", "confirm": "magenta"}
    lines = [f"[{colours[one.verdict]}]{one.verdict:8}[/] {one.what}: {escape(one.found)}" for one in findings]
    show([vars(finding) for finding in findings], as_json, lines=lines)
    has_errors, can_ask = any(one.verdict == "error" for one in findings), on_terminal() and not as_json
    questions = [f"{one.what}: is that meant?" for one in findings if one.verdict == "confirm"]
    if has_errors or not all(can_ask and typer.confirm(question) for question in questions):
        raise typer.Exit(UNSAFE)


@command(COMPARE, "`episafe paper --quick --out results`")
def paper(
    quick: Annotated[bool, typer.Option("--quick", help="3 seeds of 1000 episodes, not 10 of 10,000.")] = False,
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's experiments: every agent on every environment, and a page that shows it.

    Stopped with Ctrl-C, the same command finishes what is missing and repeats nothing.
    """
    from episafe.experiments.comparisons import reproduce

    _experiment(partial(reproduce, quick), out or _place("paper-results", quick), workers, on, as_json)


def _place(name: str, quick: bool) -> Path:
    return Path(name) / ("quick" if quick else "full")


def _experiment(
    run_all: "Callable[[Place], Failures]", folder: Path, workers: int | None, on: str, as_json: bool
) -> None:
    """Run an experiment; interrupted it says how to go on, and failed jobs are named."""
    from episafe.experiments.comparisons import Place

    with exit_codes(lambda: UNFINISHED):
        failures = run_all(Place(folder, workers, on, errors if as_json else console))
    if as_json:
        show({"folder": str(folder), "report": str(folder / "report.html"), "failed": dict(failures)}, as_json)
    _say_failures(failures)


def _say_failures(failures: Failures) -> None:
    """Name the jobs that failed, and leave with the code that says so."""
    for name, reason in islice(failures.items(), SHOWN):
        errors.prose(f"[red]failed:[/red] {escape(name)}: {escape(reason)}")
    if len(failures) > SHOWN:
        errors.print(f"and {len(failures) - SHOWN} more")
    if failures:
        raise typer.Exit(FAILED)


@command(COMPARE, "`episafe bandit --quick --out bandits`")
def bandit(
    quick: Annotated[bool, typer.Option("--quick", help="3 seeds of 10,000 rounds, not 20 of 100,000.")] = False,
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Compare safe linear bandits: OPLB-SP and its peers on four kinds of action sets, and a page that shows it.

    Stopped with Ctrl-C, the same command finishes what is missing and repeats nothing.
    """
    from episafe.experiments.comparisons import compare

    _experiment(partial(compare, quick), out or _place("bandit-results", quick), workers, on, as_json)


@command(COMPARE, "`episafe sweep slack.toml --out slack`; docs/sweeps.md has a file to begin with")
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Environments, agents, seeds, and what to vary.")],
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Run a sweep of your own: every agent on every environment at every seed, and a page that shows it.

    Finished runs are never repeated: stopped, killed, or with more in the file, the same command makes what is missing.
    """
    from episafe.experiments.comparisons import sweep as run_sweep

    _experiment(partial(run_sweep, file), out or Path(file.stem), workers, on, as_json)


@command(COMPARE, "`episafe benchmark --out bench`; docs/benchmark.md says how to read it")
def benchmark(
    full: Annotated[bool, typer.Option("--full", help="100 problems of 10,000 episodes: hours, resumable.")] = False,
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    latex: Annotated[bool, typer.Option("--latex", help="Write results.tex too, for the booktabs package.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare every agent on every frozen problem set: violation, regret, growth, time; one page.

    Stopped, killed, or with workers lost, the same command finishes what is missing and repeats nothing.
    """
    from episafe.benchmark import measurement
    from episafe.experiments.comparisons import Place

    place = Place(out or _place("benchmark-results", not full), workers, on, errors if as_json else console)
    with exit_codes(lambda: UNFINISHED):
        found, failures = measurement.benchmark(not full, place, latex)
    found["failed"] = dict(failures)
    show(found, as_json, [measurement.table(found)], [escape(f"page: {found['page']}")])
    _say_failures(failures)


@command(BEGIN, "`episafe report results --latex`")
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, of a session, or of several.")],
    latex: Annotated[bool, typer.Option("--latex", help="Write summary.tex too, for the booktabs package.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of a folder: report.html and, of runs with exact values, figures, summary.csv and summary.md.

    The folder is that of a run, of a live session, or one with several of them.
    """
    from episafe.reports.report import write_report

    with exit_codes():
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        with progress.late_bar(f"reporting {folder}", errors) as advance:
            page = write_report(folder, latex, advance)
    show({"report": str(page)}, as_json, lines=[escape(f"wrote {page}")])


@command(COMPARE, "`episafe bench --quick --json`")
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the episodes, one repeat.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure speed on this machine: episodes per second, plans, and growth with K, S and d."""
    from episafe.tools import bench as measuring

    with (
        exit_codes(lambda: "stopped; nothing was kept: run it again"),
        progress.bar("episafe bench", 1.0, errors) as advance,
    ):
        found = measuring.measure(quick, advance)
    show(found, as_json, measuring.tables(found), [escape(measuring.machine_line(found))])


@command(OWN, "`episafe preflight shop:problem`, or `episafe preflight --env linear --episodes 10000`")
def preflight(
    name: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:NAME", help="A problem of your own, or a function of it: the forecast."),
    ] = None,
    env: Env = "tabular",
    problem: Annotated[Path | None, typer.Option(help="A problem of your own, written by `cmdp.save`.")] = None,
    episodes: Episodes = 10_000,
    delta: Annotated[float, typer.Option(help="Failure probability of the theorem.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the problem.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Say what to expect before a run: when something is gained, and constants, incumbent episodes, regret bounds."""
    from episafe import envs
    from episafe.problems.cmdp import LinearCMDP
    from episafe.tools import preflight as before

    found: dict[str, Any]
    with exit_codes():
        if name:
            with progress.late_bar(f"playing {name}", errors) as advance:
                found = {"forecast": before.gain(named_problem(name), delta, advance), "notes": []}
        else:
            found = before.preflight(LinearCMDP.load(problem) if problem else envs.make(env, seed), episodes, delta)
    if not as_json:
        console.say(f"Forecast for es.OPSE(task): {found['forecast']['text']}")
    show(found, as_json, [] if name else before.tables(found), [f"- {note}" for note in found["notes"]])


@command(COMPARE, "`episafe calibrate streaming --delta 0.05 --problems 60 --set horizon=3`")
def calibrate(
    family: Annotated[str, typer.Argument(help="An environment, or MODULE:FUNCTION that makes a problem of a seed.")],
    delta: Annotated[float, typer.Option(help="Violation rate to stay below.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Confidence of the Clopper-Pearson test.")] = 0.95,
    problems: Annotated[int, typer.Option(min=1, help="Number of problems.")] = 100,
    episodes: EpisodesEach = 10_000,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first problem.")] = 10_000,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the family; repeatable.")
    ] = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Find the smallest constants that a family of problems bears, and say with what confidence."""
    from episafe.experiments.agent_choice import parse_changes
    from episafe.experiments.executors import pool_on
    from episafe.tools import calibration as calibrating

    most = problems * len(calibrating.GRID)
    with (
        exit_codes(),
        pool_on(on, workers) as executor,
        progress.bar("episafe calibrate, at most", most, errors) as advance,
    ):
        found = calibrating.calibrate(
            calibrating.family_of(family, parse_changes(changes or [])), family, delta=delta, confidence=confidence,
            num_problems=problems, num_episodes=episodes, first_seed=first_seed, on_problem=advance,
            on_trial=lambda trial: errors.say(str(trial)), executor=executor,
        )  # fmt: skip
    facts = {"level": "calibrated", "multiplier": found.multiplier, "statement": found.statement}
    facts["trials"] = [vars(trial) for trial in found.trials]
    show(facts, as_json, [calibrating.table(found)], [escape(f"calibrated: {found.statement}")])


@command(COMPARE, "`episafe frontier --seeds 5 --episodes 2000 --out frontier`")
def frontier(
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Environment, may be repeated; default: all three.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Problems an environment that settings are compared on.")] = 20,
    fresh: Annotated[
        int, typer.Option(min=1, help="Other problems, to judge the best setting of each agent on.")
    ] = 100,
    episodes: EpisodesEach = 10_000,
    out: Annotated[Path, typer.Option(help="Folder for records, frontier.csv, winners.csv and frontier.png.")] = Path(
        "frontier"
    ),
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Draw regret against violation over the constants: OPSE, Ghosh et al., DOPE, and whose entry names constants.

    The budget is the same for each.

    The best setting of each agent without a violation is run again on fresh problems: only that says what it is worth.
    """
    from episafe import envs
    from episafe.experiments.comparisons import RECORDS
    from episafe.experiments.executors import executor_on
    from episafe.experiments.worker_pool import make_records
    from episafe.tools import frontier as tracing

    titles = iter(("episafe frontier", "the best of each agent, afresh"))

    def perform(jobs: "Sequence[Job]") -> Path:
        with progress.counting(next(titles), jobs, errors) as on_done:
            make_records(jobs, out / RECORDS, workers=workers, on_done=on_done, executor=executor)
        return out / RECORDS

    with exit_codes(), executor_on(on) as executor:
        for name in env or ():
            envs.make(name)  # that there is one
        points = tracing.frontier(tuple(env or tracing.ENVS), seeds, episodes, perform)
        winners = tracing.judged(tracing.picked(points), fresh, perform)
        paths = tracing.write_frontier(points, winners, out)
    found = {"points": points, "winners": winners}
    show(found, as_json, [tracing.table(winners)], [escape(f"wrote {path}") for path in paths])


@command(OWN, "`episafe explain shop --plan 12 --html plan.html`")
def explain(
    folder: Annotated[Path, typer.Argument(help="A folder with a journal; it may be in use.")],
    plan: Annotated[int | None, typer.Option(help="Number of the plan; default: the last.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page with a picture to this file too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say of one plan who acts, why that was allowed, what the claim is worth, and what came of it."""
    from episafe.deployment.explanation import explain as explained
    from episafe.reports import explanation_page
    from episafe.storage.atomic_files import as_output, write_text

    with exit_codes():
        with progress.late_bar(f"reading {folder}", errors) as advance:
            found = explained(folder, plan, advance)
        if page is not None:
            write_text(as_output(page), explanation_page.to_html(folder.resolve().name, found))
    lines = [*found.sentences, *([""] if found.bars else []), *found.bars, *([f"wrote {page}"] if page else [])]
    show(found.as_dict(), as_json, lines=[escape(line) for line in lines])


@command(OWN, "`episafe serve shop --agent shop:agent`")
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of the journal; made if there is none.")],
    agent: Annotated[str, typer.Option(help="MODULE:NAME of a function that makes the agent.")],
    host: Annotated[
        str, typer.Option(help="Address to listen at; other than the loopback asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8765,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; default: $EPISAFE_TOKEN.")] = None,
    sync: Annotated[str, typer.Option(help="each or plans: what is waited for.")] = "each",
    false_alarm: Annotated[float, typer.Option(help="Probability that the monitors ever raise a false alarm.")] = 0.01,
    incumbent_version: Annotated[str, typer.Option(help="What you call the incumbent, as for es.open.")] = "",
) -> None:
    """Answer over HTTP for one session: plan, act, learn, halt, status. On any error the answer is the incumbent.

    Where it is served, and every alarm, halt and fault, is a line of its standard error.
    """
    import logging

    from episafe.service.server import serve as answer

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")  # to the standard error
    logging.getLogger("episafe").setLevel(logging.INFO)
    with exit_codes():
        made = named(agent)
        with errors_inside(agent):
            said = {"false_alarm": false_alarm, "incumbent_version": incumbent_version}
            answer(folder, made, host, port, token_file, sync, **said)  # type: ignore[arg-type]


@command(OWN, "`episafe dashboard shop`, while `episafe serve shop` runs")
def dashboard(
    folder: Annotated[Path, typer.Argument(help="A folder with a journal, live or of a run; it may be in use.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the loopback to listen at.")] = 8766,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds after which an open page asks again.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Follow a journal on a page of this machine: who acts, why it is allowed, what came of it, what is missing.

    It only reads, and the writer does not notice. With --json it prints what the page says, once, and leaves.
    """
    from episafe.deployment.follower import Follower
    from episafe.deployment.journal_folder import read_head
    from episafe.reports.dashboard_page import figures

    with exit_codes(lambda: "stopped; the journal goes on"):
        if as_json:
            follower = Follower(folder)
            follower.read_on()
            echo(json.dumps(figures(follower), indent=2))
            return
        try:
            from episafe.service.dashboard import watch
        except ModuleNotFoundError as error:
            raise ValueError(f"the dashboard needs an extra: pip install 'episafe[serve]' ({error})") from error
        read_head(folder)  # that there is a journal
        console.say(f"episafe follows {folder} at http://localhost:{port}/ (Ctrl-C ends it)")
        watch(folder, port, every)


def _six_digits(value: Any) -> str:
    """A fact for people, or one a constraint."""
    if isinstance(value, list):
        return ", ".join(map(_six_digits, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _show_run(record: "Record", as_json: bool, folder: Path | None) -> None:
    """What a run reached; where it is kept, also what to do with it."""
    from episafe.reports.metrics import run_facts

    facts = run_facts(record)
    if folder is not None:
        facts["folder"] = str(folder)
    table = Table(show_header=False)
    for name, value in facts.items():
        if value is not None and name != "incumbent_deployments":  # said by incumbent and mixed episodes
            table.add_row(name.replace("_", " "), escape(_six_digits(value)))
    steps = (
        f"kept in {folder}; next:",
        f"  episafe report {folder}                 a page",
        f"  episafe audit {folder}                  verify it",
        f"  episafe resume {folder} --episodes N    go on",
    )
    show(facts, as_json, [table], list(map(escape, steps)) if folder else [])
