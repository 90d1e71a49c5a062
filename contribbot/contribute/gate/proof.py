"""Rules about evidence."""

from __future__ import annotations

from contribbot.contribute.gate.case import Case, Finding, failed, passed, person, refused
from contribbot.contribute.text.body import Body
from contribbot.contribute.text.figures import gather
from contribbot.errors import ContribbotError, NotProvedError
from contribbot.lifecycle.status import asked, target_states


def evidence(case: Case) -> Finding:
    """Fresh evidence proves the patch."""
    try:
        figures = gather(case.queue, case.patch.name)
    except NotProvedError as error:
        return refused(error)
    return passed(f"fresh: {', '.join(source.file for source in figures.sources)}")


def targets(case: Case) -> Finding:
    """The targets that the upstream requires are proved."""
    name, required = case.patch.name, case.rules.require
    if not required:
        return passed("the upstream requires none")
    stated = asked(case.patch.spec)
    known = {one.target: one.evidence for one in target_states(case.queue, name)}
    missing = [one for one in required if one not in stated]
    if missing:
        return failed(
            f"required, and the patch states nothing for it: {', '.join(missing)}",
            "state a check for it in patch.toml",
        )
    opened = [f"{one} ({known[one]})" for one in required if known[one] != "fresh"]
    if opened:
        return failed(
            f"required, and not proved: {', '.join(opened)}",
            f"contribbot verify {name}, on a machine that has it",
        )
    return passed(", ".join(required))


def not_run(case: Case) -> Finding:
    """Targets on which nothing ran: the text says so, and a person decides."""
    made: Body | ContribbotError = case.body
    if isinstance(made, ContribbotError):
        return person("not known before there is fresh evidence")
    if made.not_run:
        return person(
            f"not run: {', '.join(made.not_run)}",
            "the text says so; run it on such a machine, or let the upstream's CI do it",
        )
    return passed("something ran on each target that the patch or the upstream names")
