"""Attestations as they lie there, and what they keep of the look for duplicates."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.contribute.gate import looks
from contribbot.contribute.text.templates import rules_of
from contribbot.errors import AttestationError
from contribbot.github.auth import find_server
from contribbot.model.attestation import Attestation, json_digest
from contribbot.model.gate import Searched, searched_in
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue

#: How long what GitHub said holds.
FRESH: Final = timedelta(hours=24)
#: By how much clocks may differ.
SKEW: Final = timedelta(minutes=5)


def attestation_file(queue: Queue, name: str) -> Path:
    """Return the file that holds the attestation of a patch; need not be there."""
    return queue.folder / "attestations" / f"{name}.json"


def read(queue: Queue, name: str) -> Attestation:
    """Return the attestation of a patch, whatever it is worth."""
    path, again = attestation_file(queue, name), f"contribbot attest {name}"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise AttestationError(f"{name}: nobody has attested it", hint=again) from None
    try:
        found = Attestation.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AttestationError(
            f"{path}: no attestation that can be read: {where}: {first['msg']}", hint=again
        ) from None
    if not found.intact:
        raise AttestationError(f"{path}: it was changed after it was written", hint=again)
    return found


def searched(queue: Queue, name: str, *, now: datetime | None = None) -> Searched | None:
    """Return the look for duplicates that the text of a patch may tell of. GitHub is not asked.

    The one that was attested comes first: so the text stays what a person stood for, also
    where it is posted from another machine.
    """
    patch = queue.patch(name)
    asked = rules_of(queue, patch.spec.upstream).body.duplicates
    if not asked or patch.spec.contribution.different:
        return None
    moment = now or datetime.now(UTC)
    look = looks.remembered(queue, name, server=find_server().api, now=moment)
    if look is not None and look.candidates:
        return None
    return _attested(queue, patch, moment) or (look.searched if look is not None else None)


def _attested(queue: Queue, patch: Patch, now: datetime) -> Searched | None:
    """Return the look that somebody attested of this very patch, while it holds."""
    try:
        found = read(queue, patch.name)
    except AttestationError:
        return None
    was = found.basis
    same = (
        {one.name: one.sha256 for one in was.files}
        == {one.name: hashlib.sha256(one.content).hexdigest() for one in patch.files}
        and (was.repository, was.title) == (patch.upstream.repository, patch.spec.title)
        and was.contribution == json_digest(patch.spec.contribution.model_dump(mode="json"))
    )
    holds = -SKEW <= now - found.looked <= FRESH
    return searched_in(was.gate) if same and holds else None
