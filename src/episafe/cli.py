"""The command line. Each command imports what it needs, so that `episafe --help` is fast."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import episafe
from episafe.core.errors import DamagedLog, Infeasible

if TYPE_CHECKING:
    from episafe.core.types import Document
    from episafe.lab.sweep import Sweep

FAILED, USAGE, UNSAFE, DAMAGED = 1, 2, 3, 4  # exit codes; 0 is success
console, errors = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)

app = typer.Typer(
    name="episafe",
    help="Improve a policy online while the expected utility of every deployed policy stays above its limit.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Out = Annotated[Path | None, typer.Option(help="Folder for records and the summary page.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")]
On = Annotated[str, typer.Option(help="Where to run: local, or dask:ADDRESS of a scheduler on a trusted network.")]
Location = Annotated[str, typer.Argument(help="Folder or postgresql:// address of the session.")]
SessionName = Annotated[str | None, typer.Option("--name", help="Name of the session, on PostgreSQL.")]
AgentBuilder = Annotated[
    str | None, typer.Option("--agent", metavar="MODULE:FUNCTION", help="A function that builds the agent.")
]
Progressed = Callable[[int, int], None]


def command(example: str, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose help ends with an example, and whose errors have exit codes."""
    return lambda function: app.command(name, epilog=f"Example: `{example}`")(exit_codes()(function))


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn the errors that users can cause into one line and an exit code."""
    try:
        yield
    except typer.Exit:
        raise
    except DamagedLog as error:
        _fail(error, DAMAGED)
    except Infeasible as error:
        _fail(error, UNSAFE)
    except (ValueError, TypeError, FileNotFoundError, ImportError) as error:
        _fail(error, USAGE)
    except (OSError, RuntimeError) as error:
        _fail(error, FAILED)
    except KeyboardInterrupt:
        errors.print("stopped: repeat the command to finish")
        raise typer.Exit(FAILED) from None


def _fail(error: Exception, code: int) -> None:
    errors.print(f"[red]error:[/red] {escape(str(error))}")
    raise typer.Exit(code) from error


def show(found: object, as_json: bool, lines: list[str]) -> None:
    """Print JSON for programs, or lines for people."""
    if as_json:
        print(json.dumps(found, default=str))
    else:
        for line in lines:
            console.print(line)


@contextmanager
def progress(title: str) -> Iterator[Progressed]:
    """Yield a function (done, total) that moves a progress bar."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def say_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        print(f"episafe {episafe.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", "-V", callback=say_version, is_eager=True)] = False,
) -> None:
    """Show warnings as one line each."""
    warnings.showwarning = lambda message, *_, **__: errors.print(f"[yellow]warning:[/yellow] {escape(str(message))}")


@command("episafe list", "list")
def list_(as_json: AsJson = False) -> None:
    """List the environments and the agents. NAME-tuned is an agent with constants chosen on other problems."""
    from episafe.algorithms import registered_agents
    from episafe.envs import ENVIRONMENTS, options_of

    found: dict[str, Document] = {
        "environments": {name: options_of(name) for name in ENVIRONMENTS},
        "agents": {name: facts.summary for name, (facts, _) in sorted(registered_agents().items())},
    }
    if as_json:
        return show(found, True, [])
    for title, rows in found.items():
        table = Table("name", "options" if title == "environments" else "what it is", title=title.capitalize())
        for name, shown in rows.items():
            text = shown if isinstance(shown, str) else ", ".join(f"{key}={value}" for key, value in shown.items())
            table.add_row(name, escape(text))
        console.print(table)


@command("episafe run inventory --episodes 1000 --out shop")
def run(
    env: Annotated[
        str, typer.Argument(help="An environment, or module:name of a problem or its function.")
    ] = "inventory",
    agent: Annotated[str, typer.Option(help="An agent, or module:Class; `safe` is the recommended one.")] = "safe",
    episodes: Annotated[int, typer.Option(min=1)] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the problem and of the run.")] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the agent; env.NAME=VALUE of the environment."),
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run one agent on one problem. The last line is the verdict."""
    from episafe.lab.sweep import Job
    from episafe.report.verdict import promise, verdict

    env_options, agent_options = _options(changes or [])
    if out is not None and (out / "record.json").exists():
        raise ValueError(f"{out} has a record already: choose another --out, or delete it")
    job = Job(env, agent, seed, episodes, tuple(env_options.items()), tuple(agent_options.items()))
    with progress(f"{agent} on {env}") as advance:
        record = job.run(on_progress=lambda done: advance(done, episodes))
    lines = [f"bounds: {promise(record)}"]
    if out is not None:
        from episafe.report.pages import write_report

        record.save(out)
        lines.append(f"page: {write_report(out)}")
    lines.append(verdict(record))
    show({"settings": record.settings, "verdict": lines[-1]}, as_json, [escape(line) for line in lines])


def _options(changes: list[str]) -> "tuple[Document, Document]":
    """Return the options of the environment and of the agent; values are read as JSON where possible."""
    env: Document = {}
    agent: Document = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, got {change!r}")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        (env if name.startswith("env.") else agent)[name.removeprefix("env.")] = value
    return env, agent


@command("episafe paper --quick --out paper-results")
def paper(
    quick: Annotated[bool, typer.Option("--quick", help="Run 3 problems of 1,000 episodes, not 10 of 10,000.")] = False,
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Run the paper's comparison, with the rules of the text and of the released code."""
    from episafe.lab.paper import paper_sweep, published_table

    asked, folder = paper_sweep(quick), out or Path("paper-results")
    _run_sweep(asked, folder, workers, on, as_json)
    table = published_table(asked.records(folder))
    (folder / "table.md").write_text(table)
    if not as_json:
        console.print(table)


@command("episafe sweep slack.toml --out slack")
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Environments, agents, seeds and options.")],
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Run every agent on every environment with every seed. Runs that are already in the folder are not repeated."""
    from episafe.lab.sweep import Sweep

    _run_sweep(Sweep.read(file), out or Path(file.stem), workers, on, as_json)


def _run_sweep(
    asked: "Sweep",
    out: Path,
    workers: int | None,
    on: str,
    as_json: bool,
    write: Callable[[Path], Path] | None = None,
) -> None:
    """Run the missing runs of a sweep, write its page, and list the runs that failed."""
    from episafe.report.pages import write_report

    with progress(asked.title) as advance:
        failures = asked.run(out, workers, on, advance)
    page = (write or write_report)(out) if len(failures) < len(asked.jobs) else None
    for name, reason in list(failures.items())[:10]:
        errors.print(f"[red]failed:[/red] {escape(name)}: {escape(reason)}")
    show({"folder": str(out), "page": str(page), "failed": failures}, as_json, [f"page: {page}"] if page else [])
    if failures:
        raise typer.Exit(FAILED)


@command("episafe benchmark --agent mine:Agent --sets tabular,linear --out bench")
def benchmark(
    agent: Annotated[list[str] | None, typer.Option(help="An agent or module:Class; repeatable.")] = None,
    sets: Annotated[str, typer.Option(help='Problem sets, separated by commas, or "all".')] = "tabular,linear-active",
    problems: Annotated[int, typer.Option(min=1, max=100, help="Problems per set.")] = 5,
    episodes: Annotated[int, typer.Option(min=1)] = 1_000,
    verify: Annotated[Path | None, typer.Option(help="Verify a results.json instead: repeat a random tenth.")] = None,
    out: Out = None,
    workers: Workers = None,
    on: On = "local",
    as_json: AsJson = False,
) -> None:
    """Run agents on fixed sets of problems, and compare them with the reference results."""
    from episafe.lab import benchmark as bench

    out = out or Path("benchmark-results")
    if verify is not None:
        number, faults = bench.verify(verify, workers)
        console.print(f"{number} runs repeated: " + ("\n".join(faults) or "all results are reproduced"))
        raise typer.Exit(1 if faults else 0)
    agents = [(name, dict[str, object]()) for name in agent or ["safe", "opse-tuned", "incumbent"]]
    names = list(bench.SETS) if sets == "all" else sets.split(",")
    asked = bench.benchmark(agents, names, problems, episodes)
    left_out = bench.unplayable([one for one, _ in agents], names)
    asked.check()
    for (name, where), reason in left_out.items():
        errors.print(f"left out: {escape(name)} on {where}: {escape(reason)}")
    _run_sweep(asked, out, workers, on, as_json, lambda folder: bench.write_results(asked, folder, left_out))


@command("episafe report shop")
def report(folder: Annotated[Path, typer.Argument(help="Folder of a run, a sweep or a session.")]) -> None:
    """Write report.html for a run, a sweep or a session."""
    from episafe.report.pages import write_report

    if (folder / "log.jsonl").exists():
        from episafe.service.dashboard import session_page

        page = folder / "report.html"
        page.write_text(session_page(str(folder)), encoding="utf-8")
    else:
        page = write_report(folder)
    console.print(f"page: {page}")


@command("episafe check shop:problem")
def check(
    name: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="An environment, or module:name of a problem or its function.")
    ],
    episodes: Annotated[int, typer.Option(min=20, help="Episodes of the incumbent.")] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Play your problem with its incumbent, and report mistakes, remedies, a forecast and the recommended agent."""
    from episafe.lab.build import make_problem
    from episafe.lab.forecast import episodes_of, recommend
    from episafe.simulation.checks import check_problem

    problem = make_problem(name, seed, {})
    findings = check_problem(problem, episodes, seed)
    if problem.task.horizon is not None and all(verdict != "error" for verdict, _ in findings):
        findings += [("ok", one) for one in recommend(problem.task, episodes_of(problem, episodes, seed), seed)]
    colours = {"ok": "green", "warning": "yellow", "error": "red"}
    lines = [f"[{colours[verdict]}]{verdict:8}[/] {escape(text)}" for verdict, text in findings]
    show([{"verdict": verdict, "text": text} for verdict, text in findings], as_json, lines)
    if any(verdict == "error" for verdict, _ in findings):
        raise typer.Exit(UNSAFE)


@command("episafe audit sessions/shop --head 3f2a… --agent shop:make_agent")
def audit(
    location: Location,
    head: Annotated[str | None, typer.Option(help="Hash of the last event that you copied to another place.")] = None,
    agent: AgentBuilder = None,
    name: SessionName = None,
    as_json: AsJson = False,
) -> None:
    """Check the log of a session: the chain of hashes, and every certificate from the recorded evidence."""
    from episafe.lab.build import named_object
    from episafe.session.audit import audit as audit_log

    found = audit_log(location, None if agent is None else named_object(agent)(), name, head)
    show({"passed": found.passed, "findings": list(found.findings)}, as_json, [escape(str(found))])
    if not found.passed:
        raise typer.Exit(DAMAGED)


@command("episafe explain sessions/shop 41")
def explain(
    location: Location,
    deployment: Annotated[int, typer.Argument(help="Number of the deployment.")],
    name: SessionName = None,
    as_json: AsJson = False,
) -> None:
    """Explain one deployment: its policy, its certificate and its outcome."""
    from episafe.session.audit import explain as explain_deployment

    facts, lines = explain_deployment(location, deployment, name=name)
    show(facts, as_json, [escape(line) for line in lines])


@command("episafe serve sessions/shop --agent shop:make_agent --token-file token")
def serve(
    location: Location,
    agent: Annotated[str, typer.Option(metavar="MODULE:FUNCTION", help="A function that builds the agent.")],
    token_file: Annotated[Path, typer.Option(help="File with the token that clients must send.")],
    name: SessionName = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    timeout: Annotated[float, typer.Option(help="Seconds that planning may take before the incumbent acts.")] = 10.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each of which opens the session.")] = 1,
) -> None:
    """Serve a session over HTTP."""
    from episafe.lab.build import named_object
    from episafe.service.app import serve as serve_session

    token = token_file.read_text().strip()
    make_agent = named_object(agent)
    errors.print(f"serving {location} on http://{host}:{port}")
    serve_session(location, make_agent, token=token, name=name, host=host, port=port, timeout=timeout, workers=workers)


@command("episafe dashboard sessions/shop")
def dashboard(location: Location, name: SessionName = None, host: str = "127.0.0.1", port: int = 8001) -> None:
    """Show a session in the browser, read-only."""
    from episafe.service.dashboard import serve_dashboard

    console.print(f"open http://{host}:{port} (Ctrl-C stops)")
    serve_dashboard(location, name=name, host=host, port=port)


if __name__ == "__main__":
    sys.exit(app())
