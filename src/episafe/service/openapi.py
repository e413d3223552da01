"""What can be asked of the service, once: routes, the OpenAPI description and the page for people are made of it."""

from importlib.metadata import version
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
FLAG, LIST = {"type": "boolean"}, {"type": "array", "items": {}}
DEPLOYMENT = {
    "type": ["integer", "null"],
    "description": "its number; null for the incumbent, of which nothing is kept",
}
NAME = {"type": ["string", "integer"], "description": "a name of yours for the episode; asked twice, answered alike"}
REASON = {"type": "string", "description": "why the incumbent acts; empty where it need not"}
EPISODE = {
    "type": "object",
    "properties": {
        "states": LIST | {"description": "H + 1, from the first observation to the last"},
        "actions": LIST | {"description": "H; fewer where the episode terminated"},
        "rewards": LIST | {"description": "as many as actions, in [0, 1]"},
        "utilities": LIST | {"description": "as many as actions, in [0, 1]; of several constraints a list each"},
        "terminated": FLAG
        | {"description": "that a live environment ended the episode with its last step, at H or before"},
        "component": INTEGER,
        "trace": LIST | {"description": "what chance brought: [start, [w_1, …, w_H]], null where nobody saw it"},
        "total_utility": {"type": ["number", "array"], "description": "of several constraints a list"},
        "total_reward": NUMBER,
    },
    "additionalProperties": False,
}


class Operation(NamedTuple):
    """One thing that can be asked: how, what it does, what it takes and what it answers, by name."""

    method: str
    summary: str
    takes: dict[str, Any]
    answers: dict[str, Any]


OPERATIONS = {
    "plan": Operation(
        "POST", "Begin an episode: who acts in it. On any error the incumbent, with the reason.",
        {"episode_id": NAME, "round": INTEGER},
        {"deployment": DEPLOYMENT, "plan": INTEGER, "acting": TEXT, "component": INTEGER, "source": TEXT, "level": TEXT,
         "reason": REASON, "utility_bound": {"type": ["number", "array", "null"]}, "action": LIST},
    ),
    "act": Operation(
        "POST", "An action for one step. On any error the incumbent's, and the deployment is abandoned.",
        {"deployment": DEPLOYMENT, "step": INTEGER | {"description": "from 0, at the first observation"}, "state": {}},
        {"action": INTEGER, "deployment": DEPLOYMENT, "reason": REASON},
    ),
    "learn": Operation(
        "POST", "Report an episode by its deployment, once, however late. It is on the disk when this answers.",
        {"deployment": DEPLOYMENT, "episode_id": NAME, "episode": EPISODE, "action": LIST, "reward": NUMBER,
         "utility": NUMBER},
        {"learned": FLAG, "again": {"type": "boolean", "description": "it was known already, and nothing was changed"}},
    ),
    "abandon": Operation(
        "POST", "Say that a deployment will never be reported; it counts at its worst.", {"deployment": INTEGER},
        {"abandoned": FLAG},
    ),
    "halt": Operation(
        "POST", "Only the incumbent acts from now on. The way back is for a person, at the folder.", {"reason": TEXT},
        {"halted": FLAG},
    ),
    "status": Operation("GET", "Deployments, reports, what is missing, what is proved.", {}, {}),
    "health": Operation("GET", "That it answers, and whether the agent decides.", {}, {"alive": FLAG, "stopped": TEXT}),
}  # fmt: skip
ERRORS = {
    "400": "the request says too little, too much or something of the wrong kind",
    "401": "no token, or another",
    "403": "without a token only localhost is answered",
    "409": "the report does not fit, or was made before; nothing was changed",
    "413": "too large",
    "415": "not application/json",
    "503": "too much at once, or the disk keeps nothing: ask again later",
}


def description() -> dict[str, Any]:
    """The OpenAPI 3.1 description."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "episafe", "version": version("episafe"), "description": "Plans and reports of one session."},
        "paths": {f"/{name}": {how.method.lower(): _operation(name, how)} for name, how in OPERATIONS.items()},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def page() -> str:
    """The same for people."""
    templates = Environment(loader=PackageLoader("episafe.service"), autoescape=True, undefined=StrictUndefined)
    return templates.get_template("service.html").render(
        operations=OPERATIONS, errors=ERRORS, version=version("episafe")
    )


def _operation(name: str, how: Operation) -> dict[str, Any]:
    answers = {"200": {"description": "done", **_content(how.answers)}}
    said = {
        "operationId": name,
        "summary": how.summary,
        "responses": answers | {c: {"description": d} for c, d in ERRORS.items()},
    }
    return said | ({"requestBody": _content(how.takes)} if how.method == "POST" else {})


def _content(named: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": named} | ({"additionalProperties": False} if named else {})
    return {"content": {"application/json": {"schema": schema}}}
