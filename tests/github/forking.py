"""Making repositories: from a real one, or as a fork of one that is here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from tests.github.gitdata import BareRepository, Person, git_time
from tests.github.state import Repository, State, User


def add_repository(
    state: State, owner: User, name: str, source: Path | None, default_branch: str
) -> Repository:
    """Keep a repository with the branches and tags of a real one, or an empty one."""
    git = BareRepository.create(_folder(state, owner, name), None, default_branch)
    if source is not None:
        git.import_from(source)
    return _keep(
        state, Repository(state.next_id(), owner, name, git, default_branch, state.clock.now())
    )


def fork(
    state: State, upstream: Repository, owner: User, name: str | None, *, default_branch_only: bool
) -> Repository:
    """Fork a repository, or return the fork that this user has already.

    Where the user has an unrelated repository of that name, `-1` (or the next free number) is
    appended.
    """
    root = upstream.source or upstream
    for one in list(state.repositories.values()):
        if one.owner is owner and one.source is root:
            return one
    wanted = name or upstream.name
    for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(1))):
        if state.repository(f"{owner.login}/{wanted}{suffix}") is None:
            wanted += suffix
            break
    path = _folder(state, owner, wanted)
    objects = None if state.lagging_forks else (root.git.path / "objects").resolve()
    git = BareRepository.create(path, objects, upstream.default_branch)
    prefix = f"refs/heads/{upstream.default_branch if default_branch_only else ''}"
    refs = upstream.git.refs(prefix)
    if objects is not None:
        git.take_refs(refs)
    else:
        specs = [f"+{ref}:{ref}" for ref in refs]
        git.git("fetch", "--quiet", "--no-auto-gc", "--no-write-fetch-head",
                str(upstream.git.path), *specs)  # fmt: skip
        with (root.git.path / "objects/info/alternates").open("a", encoding="utf-8") as file:
            file.write(f"{git.path / 'objects'}\n")
    made = Repository(
        state.next_id(), owner, wanted, git, upstream.default_branch, state.clock.now()
    )
    made.parent, made.private = upstream, upstream.private
    made.has_issues = False
    made.polls_until_ready = state.forks_ready_after
    return _keep(state, made)


def _folder(state: State, owner: User, name: str) -> Path:
    return state.root / owner.login / f"{name}.git"


def _keep(state: State, one: Repository) -> Repository:
    state.repositories[one.full_name.lower()] = one
    return one


def push(
    state: State,
    repository: Repository,
    branch: str,
    files: Mapping[str, bytes | None],
    *,
    message: str,
    who: User | None,
) -> str:
    """Put one commit on a branch, as if somebody had pushed it."""
    git = repository.git
    tip = git.ref(f"refs/heads/{branch}") or git.ref(f"refs/heads/{repository.default_branch}")
    rows = [
        (path, "100644", None if content is None else git.add_blob(content))
        for path, content in files.items()
    ]
    tree = git.add_tree(git.commit(tip).tree if tip else None, rows)
    user = who or repository.owner
    person = Person(user.name, user.email, git_time(state.clock.now()))
    sha = git.add_commit(tree, [tip] if tip else [], person, person, message)
    git.set_ref(f"refs/heads/{branch}", sha)
    return sha
