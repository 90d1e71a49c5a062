"""Rules about the title and the commits."""

from __future__ import annotations

import re
from typing import Final

from contribbot import process
from contribbot.contribute.gate.case import Case, Finding, failed, passed
from contribbot.contribute.text.sections import ai_used
from contribbot.git.patch_format import Mail
from contribbot.git.repository import git_environment

_SIGNED: Final = re.compile(r"^Signed-off-by: (?P<name>.+) <(?P<email>[^<>\s]+)>\s*$", re.MULTILINE)


def title(case: Case) -> Finding:
    """The title matches the upstream's pattern."""
    said, pattern = case.patch.spec.title, case.rules.title
    if not pattern:
        return passed(f"{said} (the upstream has no pattern)")
    if re.search(pattern, said):
        return passed(said)
    form = case.rules.title_hint or pattern
    return failed(f"{said}: not in the form {form}", "change `title` in patch.toml")


def sign_off(case: Case) -> Finding:
    """Each commit is signed off by its author."""
    if not (case.rules.sign_off or case.patch.upstream.commits.sign_off):
        return passed("not asked for")
    unsigned = [name for name, mail in case.mails if not _signed(mail)]
    if unsigned:
        mail = dict(case.mails)[unsigned[0]]
        return failed(
            f"no Signed-off-by of the author {mail.name} <{mail.email}> in {', '.join(unsigned)}",
            f"contribbot edit {case.patch.name}; git rebase --signoff; contribbot refresh",
        )
    return passed(f"by the author in {_commits(len(case.mails))}")


def ai_trailer(case: Case) -> Finding:
    """Where AI was used, each commit has the trailer that the upstream asks for."""
    pattern = case.rules.ai.trailer
    if not pattern:
        return passed("not asked for")
    if not ai_used(case.patch.spec.contribution):
        return passed("[contribution] does not say that AI was used")
    said = {
        name: [one for one in trailers(mail.message) if re.search(pattern, one)]
        for name, mail in case.mails
    }
    lacking = [name for name, found in said.items() if not found]
    if lacking:
        return failed(
            f"AI was used, and no trailer says so in {', '.join(lacking)}",
            f"add one such as `Assisted-by: NAME` to the message: contribbot edit "
            f"{case.patch.name}",
        )
    # Whether it names an AI or another person is for whoever reads this to see.
    shown = dict.fromkeys(one for found in said.values() for one in found)
    return passed(f"in {_commits(len(case.mails))}: {'; '.join(shown)}")


def trailers(message: str) -> list[str]:
    """Return the trailers of a commit's message, as git finds them."""
    done = process.run(
        ["git", "interpret-trailers", "--parse", "--no-divider"],
        env=git_environment({"GIT_CEILING_DIRECTORIES": "/"}),
        stdin=message.encode(),
    )
    return done.stdout.decode("utf-8", "replace").splitlines()


def _signed(mail: Mail) -> bool:
    """Say whether its author signed a commit; case does not matter."""
    author = (mail.name.casefold(), mail.email.casefold())
    return any(
        (found["name"].casefold(), found["email"].casefold()) == author
        for found in _SIGNED.finditer(mail.message)
    )


def _commits(number: int) -> str:
    return "the commit" if number == 1 else f"all {number} commits"
