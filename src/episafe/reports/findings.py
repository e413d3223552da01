"""What the numbers say, in plain words. Every sentence here is made from summaries; none is made up."""

from collections.abc import Mapping, Sequence

from episafe.reports.labels import in_rounds, label, multiplied, name, place_title, replanning
from episafe.reports.metrics import Summary
from episafe.reports.panels import size
from episafe.reports.tables import number, plus_minus
from episafe.stats import rate_interval

ENOUGH_RUNS = 10
STRAYS = "strays at single steps from the incumbent, or from what was proved in its place"

LEVELS = {
    "heuristic": "the constants were set by hand, as in the paper’s own experiments. Zero violation at this level is "
    "observed, not proved.",
    "calibrated": "the constants were validated by simulation on a stated family of problems; outside that family zero "
    "violation is observed, not proved.",
    "theorem": "proved: with probability at least 1 − δ no episode violates, under the assumptions of the theorem or "
    "of the certifier (docs/theory-certificates.md).",
}
VARIANTS = {
    "released": "follows the code behind the published figures.",
    "text": "follows the words of the paper. In its tabular problem reward and utility are 1 with probability 0.9, so "
    "that the constraint hardly binds.",
}

READING = {
    "Regret": "The sum over episodes of the exact constrained optimum minus the exact value of the deployed policy. It "
    "is signed: an agent that breaks the constraint can earn more than the constrained optimum, and then its "
    "regret falls, even below zero. Low regret with violations is therefore no success.",
    "Violation": "The hard one: the sum over episodes of max{b − V, 0}, where V is the exact utility of the deployed "
    "policy and b the threshold; a safe episode never makes up for an unsafe one. The table also lists the "
    "cancelling one, max{Σ(b − V), 0}, where it does. Of several constraints it is the sum. An episode counts as "
    "violating if b − V is above 10⁻⁹, which only sets rounding aside.",
    "Incumbent acted": "Episodes in which the policy that the agent was given as safe acted: alone, or drawn "
    "by the coin of a mixture of which it is a component. An agent of whose episodes all are the incumbent’s is safe, "
    "and has not explored yet. One that is certified by fresh data deploys neither: it strays from the incumbent, or "
    "from what was proved in its place, at any step with a small probability, so that no whole episode is the "
    "incumbent’s and yet its regret may long be nearly that of the incumbent.",
    "Intervals": "95 % t-intervals over runs. Runs of different seeds are runs on different problems, so the intervals "
    "show how problems differ as well as how runs do. An interval of width 0 around 0 violations does "
    "not prove that none can occur.",
}


def safe_and_unsafe(summaries: Sequence[Summary]) -> tuple[list[str], list[str]]:
    """Agents without a violating episode, and agents with one, each with its counts over all problems; those with the
    same counts together."""
    safe, unsafe = dict[str, list[str]](), dict[str, list[str]]()
    for agent in dict.fromkeys(map(multiplied, summaries)):
        rows = [summary for summary in summaries if multiplied(summary) == agent]
        alike = unsafe if any(row.total_violating_episodes for row in rows) else safe
        alike.setdefault(in_rounds(_counts(rows), rows), []).append(agent)
    return _together(safe), _together(unsafe)


def _counts(rows: Sequence[Summary]) -> str:
    """How many episodes and runs of one agent violated, and what that says of all such runs."""
    runs = sum(row.num_runs for row in rows)
    episodes = sum(row.num_runs * row.num_episodes for row in rows)
    violating = sum(row.total_violating_episodes for row in rows)
    in_runs = sum(row.violating_runs for row in rows)
    if violating:
        return f"{share(violating, episodes)} of episodes, in {in_runs} of {runs} runs{_rate(in_runs, runs)}"
    return f"0 of {episodes:,} episodes, {plural(runs, 'run')}{_rate(0, runs)}"


def _together(said: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{'; '.join(names)} ({'each ' if len(names) > 1 else ''}{counts})" for counts, names in said.items()]


def _rate(num_violating: int, num_runs: int) -> str:
    """What so many runs say of all such runs."""
    low, high = rate_interval(num_violating, num_runs)
    bounds = f"at most {share(high, 1)}" if num_violating == 0 else f"{share(low, 1)} to {share(high, 1)}"
    return f"; with 95 % confidence {bounds} of such runs violate"


def caveat(summaries: Sequence[Summary]) -> str:
    """What a zero is worth, by the lowest level among the agents that check their plans."""
    levels = {summary.group.level for summary in summaries if summary.has_incumbent}
    if "heuristic" in levels:
        return "Level heuristic means constants set by hand: zero violation at this level is observed here, not proved."
    if "calibrated" in levels:
        return "Level calibrated means constants validated by simulation: zero violation is observed, not proved."
    if "theorem" in levels:
        proved = "with probability at least 1 − δ no episode violates, under the theorem’s assumptions."
        return f"Level theorem: {in_rounds(proved, summaries)}"
    return ""


def few_runs(summaries: Sequence[Summary]) -> str:
    """A word of warning where intervals are too wide to rank agents by regret."""
    fewest = min(summary.num_runs for summary in summaries)
    if fewest >= ENOUGH_RUNS:
        return ""
    runs = plural(fewest, "run")
    return f"With {runs} for each agent the intervals are too wide to rank regrets; what violates can be seen."


def verdict(summaries: Sequence[Summary]) -> list[str]:
    """The outcome on one problem, a sentence an agent."""
    relied = [f"; {reliance(summary)}" if summary.has_incumbent else "" for summary in summaries]
    return [f"{label(one)}: {_outcome(one)}{more}." for one, more in zip(summaries, relied, strict=True)]


def lowest_regret(summaries: Sequence[Summary]) -> str:
    """Who was best among the agents without a violating episode; regret bought with violations is no merit.

    "" where there are too few runs to rank regrets.
    """
    safe = [summary for summary in summaries if not summary.total_violating_episodes]
    if not safe:
        return "Every agent violated the constraint."
    if few_runs(summaries):
        return ""
    best = min(safe, key=lambda summary: summary.regret.mean)
    said = f"Lowest mean regret among agents without a violating episode: {label(best)}, {plus_minus(best.regret)}."
    return in_rounds(said, summaries)


def warnings(summaries: Sequence[Summary]) -> list[str]:
    """What to bear in mind when rows of one problem are compared."""
    found = [f"{label(summary)}: {note}." for summary in summaries for note in summary.notes]
    if len({summary.seeds for summary in summaries}) > 1:
        found.append("The agents were not run on the same seeds: their means are over different problems.")
    return found


def reading(summaries: Sequence[Summary]) -> list[tuple[str, str]]:
    """The metrics in words: title and paragraph."""
    rare = [summary for summary in summaries if not summary.group.replans_every_episode]
    alike = dict[str, list[str]]()  # of every place, who plans how: places where that is the same are told together
    for place in dict.fromkeys(s.group.place for s in rare):
        theirs = _rules([s for s in summaries if s.group.place == place and s.group.replan])
        alike.setdefault(theirs, []).append(place_title(place))
    where = ". ".join(f"On {', '.join(places)}: {theirs}" for theirs, places in alike.items())
    replanned = (
        f"The paper plans before every episode. Not so here. {where}. Between plans the deployed policy does not "
        "change, and what was checked stays checked: this can cost regret, but adds no risk. Doubling(g) plans again "
        "when the logarithm of what is known of some step has grown by more than g."
    )
    said = READING | ({"Replanning": replanned} if rare else {})
    return [(title, in_rounds(words, summaries)) for title, words in said.items()]


def _rules(planners: Sequence[Summary]) -> str:
    """Who of those that plan at one place does so by which rule, those of a rule together."""
    rules = dict[str, list[str]]()
    for one in planners:
        if not one.group.replans_every_episode:
            rules.setdefault(replanning(one), []).append(name(one.group.agent))
    told = [f"{' and '.join(dict.fromkeys(who))} by {rule}" for rule, who in rules.items()]
    alone = len(rules) == 1 and all(not one.group.replans_every_episode for one in planners) and len(planners) > 1
    return f"everybody who plans, by {next(iter(rules))}" if alone else "; ".join(told)


def reliance(summary: Summary) -> str:
    """How much of the run was the incumbent's, and whether mixtures were deployed."""
    used, mixed = summary.incumbent_episodes.mean, summary.mixed_episodes.mean
    said = f"incumbent acted in {share(used, summary.num_episodes)} of episodes"
    if used == 0:
        strays = summary.settings.get("certifier") == "fresh-data"
        said = STRAYS if strays else "incumbent never acted"
    elif used == summary.num_episodes:
        said = "incumbent acted in every episode"
    if mixed:
        said += f"; mixtures deployed in {share(mixed, summary.num_episodes)}"
    return in_rounds(said, [summary])


def share(part: float, whole: float) -> str:
    """A percentage that is 0 % only for 0 and 100 % only for all."""
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f}".removesuffix(".0") + " %"


def plural(count: int, noun: str) -> str:
    """The count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _outcome(summary: Summary) -> str:
    if not summary.total_violating_episodes:
        return in_rounds(f"0 violating episodes in {size([summary])}", [summary])
    mean = summary.violating_episodes.mean
    said = (
        f"{number(mean)} violating episodes a run on average ({share(mean, summary.num_episodes)}), in "
        f"{summary.violating_runs} of {plural(summary.num_runs, 'run')}; the worst episode was "
        f"{number(summary.largest_violation)} below the threshold"
    )
    return in_rounds(said, [summary])
