"""A requester that sends nothing but reads, and writes down what it would send."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, cast

from github.Repository import Repository
from pydantic import JsonValue

from contribbot.errors import GitHubError
from contribbot.github.auth import Server, Token
from contribbot.github.git_data import (
    FOLDER,
    Author,
    TreeEntry,
    blob_id,
    commit_id,
    read_folder,
    tree_id,
)
from contribbot.github.requester import JSON, Requester, Response, is_write
from contribbot.github.waits import Waits

#: Stands for an id that only GitHub could have given.
UNKNOWN: Final = "0" * 40

Body = dict[str, JsonValue]
#: What a write does, in a line, and what GitHub would answer.
Rehearsed = tuple[str, Body]
_REPO: Final = r"/repos/([^/]+/[^/]+)"


@dataclass(frozen=True)
class Planned:
    """A request that would be sent."""

    method: str
    path: str
    summary: str


class DryRun(Requester):
    """What is rehearsed is there for later reads; ids are as GitHub would give them, numbers 0."""

    def __init__(self, server: Server, token: Token, waits: Waits, cache: Path | None) -> None:
        super().__init__(server, token, waits, cache)
        self.planned: list[Planned] = []
        self._refs: dict[tuple[str, str], str] = {}
        #: The repository to read a tree from, and the folders of trees that were made here.
        self._sources: dict[str, str] = {}
        self._trees: dict[str, tuple[TreeEntry, ...]] = {}
        self._nodes: dict[str, str] = {}

    def send(self, verb: str, url: str, accept: str, content: object = None) -> Response:
        """Send a read; write down anything else, and answer as GitHub would."""
        path, body = self.path_of(url), cast("Body", content or {})
        what = f"{verb} {path}"
        repo, _, branch = path.removeprefix("/repos/").partition("/git/ref/heads/")
        if verb == "GET" and (sha := self._refs.get((repo.lower(), branch))):
            return Response(200, {}, json.dumps(_ref_to(branch, sha)).encode())
        if not is_write(what, content):
            answer = super().send(verb, url, accept, content)
            self._learn(path, answer.body)
            return answer
        for pattern, rehearse in self._writes:
            if match := re.fullmatch(pattern, what):
                summary, known = rehearse(self, body, *match.groups())
                self.planned.append(Planned(verb, path, " ".join(summary.split())))
                return Response(201, {}, json.dumps(known).encode())
        raise GitHubError(f"{what}: nobody has said what a dry run makes of it")

    def _learn(self, path: str, body: bytes) -> None:
        """Note what a read tells of where things are."""
        repo, _, tree = path.removeprefix("/repos/").partition("/git/trees/")
        if tree:
            self._sources.setdefault(tree, repo)
        match = re.fullmatch(r"/repos/([^/]+/[^/]+)(/pulls(/\d+)?)?", path)
        if match and body.startswith((b"{", b"[")):
            known = json.loads(body)
            for row in known if isinstance(known, list) else [known]:
                name = f"{match[1]}#{row['number']}" if match[2] else row["full_name"]
                self._nodes[row["node_id"]] = name

    def _read(self, path: str) -> Body:
        return cast("Body", json.loads(super().send("GET", path, JSON).body))

    def _fork(self, _body: Body, repo: str) -> Rehearsed:
        upstream, login = self._read(f"/repos/{repo}"), self._read("/user")["login"]
        name = f"{login}/{upstream['name']}"
        self._refs[name.lower(), str(upstream["default_branch"])] = UNKNOWN
        self._nodes[name] = name
        known: Body = {
            "full_name": name, "url": f"{self.base_url}/repos/{name}", "node_id": name,
            "html_url": f"{self.server.web}/{name}",
        }  # fmt: skip
        return f"fork {repo} as {name}", {**upstream, **known}

    def _sync(self, body: Body, repo: str) -> Rehearsed:
        return f"bring {body['branch']} of {repo} up to date", {"merge_type": "fast-forward"}

    def _blob(self, body: Body, _repo: str) -> Rehearsed:
        content = base64.b64decode(str(body["content"]))
        sha = blob_id(content)
        return f"store a file of {len(content)} bytes as {sha[:12]}", {"sha": sha}

    def _tree(self, body: Body, repo: str) -> Rehearsed:
        base = str(body.get("base_tree") or "")
        changes = {
            (path := str(row["path"])): TreeEntry(path, str(row["mode"]), str(row["sha"] or ""))
            for row in cast("list[Body]", body["tree"])
        }
        source = self._sources.get(base, repo)
        try:
            sha = self._with_changes(source, base, changes)
        except GitHubError:
            sha = UNKNOWN  # the base cannot be read
        self._sources.setdefault(sha, source)
        return f"store the tree {sha[:12]}: {', '.join(changes)}", {"sha": sha}

    def _with_changes(self, repo: str, base: str, changes: dict[str, TreeEntry]) -> str:
        """Work out the id of a tree with changes, folder by folder."""
        if base and base not in self._trees:
            place = Repository(self, {}, {"url": f"/repos/{repo}"}, completed=False)
            self._trees[base] = read_folder(place, base)
        rows = {entry.path: entry for entry in self._trees.get(base, ())}
        below: dict[str, dict[str, TreeEntry]] = {}
        for path, change in changes.items():
            name, slash, rest = path.partition("/")
            if slash:
                below.setdefault(name, {})[rest] = change
            elif change.sha:
                rows[name] = TreeEntry(name, change.mode, change.sha)
            else:
                rows.pop(name, None)
        for name, inside in below.items():
            old = rows.get(name)
            folder = old.sha if old and old.mode == FOLDER else ""
            sha = self._with_changes(repo, folder, inside)
            rows.pop(name, None)
            if self._trees[sha]:  # git has no empty folders
                rows[name] = TreeEntry(name, FOLDER, sha)
        tree = tree_id(rows.values())
        self._trees[tree] = tuple(rows.values())
        return tree

    def _commit(self, body: Body, _repo: str) -> Rehearsed:
        who = cast("dict[str, str]", body["author"])
        author = Author(who["name"], who["email"], datetime.fromisoformat(who["date"]))
        message, parents = str(body["message"]), cast("list[str]", body["parents"])
        sha = commit_id(message, str(body["tree"]), parents, author)
        return f"store the commit {sha[:12]}: {message.partition(chr(10))[0]}", {"sha": sha}

    def _ref(self, body: Body, repo: str, branch: str = "") -> Rehearsed:
        new, sha = str(body.get("ref", "")).removeprefix("refs/heads/"), str(body["sha"])
        self._refs[repo.lower(), new or branch] = sha
        if new:
            return f"make the branch {new} of {repo} at {sha[:12]}", _ref_to(new, sha)
        forced = ", forced" if body.get("force") else ""
        return f"move the branch {branch} of {repo} to {sha[:12]}{forced}", _ref_to(branch, sha)

    def _pull(self, body: Body, repo: str) -> Rehearsed:
        now, head = datetime.now(UTC).isoformat(), str(body["head"])
        kind = "a draft of a pull request" if body["draft"] else "a pull request"
        known: Body = {
            **body, "number": 0, "state": "open", "url": f"{self.base_url}/repos/{repo}/pulls/0",
            "html_url": f"{self.server.web}/{repo}/pulls", "created_at": now, "updated_at": now,
            "head": {"ref": head.partition(":")[2], "sha": UNKNOWN},
            "base": {"ref": body["base"], "sha": UNKNOWN},
        }  # fmt: skip
        return f"open {kind} of {head} to {repo}: {body['title']}", known

    def _edit(self, body: Body, repo: str, number: str) -> Rehearsed:
        pull = self._read(f"/repos/{repo}/pulls/{number}")
        return f"change {', '.join(body)} of {repo}#{number}", {**pull, **body}

    def _comment(self, body: Body, repo: str, number: str) -> Rehearsed:
        page, now = f"{self.server.web}/{repo}/pull/{number}", datetime.now(UTC).isoformat()
        known: Body = {**body, "id": 0, "html_url": page, "created_at": now, "updated_at": now}
        return f"comment on {repo}#{number}", known

    def _graphql(self, body: Body) -> Rehearsed:
        asked = cast("dict[str, Body]", body["variables"])["input"]
        if "markPullRequestReadyForReview" in str(body["query"]):
            ready: Body = {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}
            pull = self._nodes[str(asked["pullRequestId"])]
            return f"mark {pull} ready for review", {"data": ready}
        (update,) = cast("list[dict[str, str]]", asked["refUpdates"])
        repo, branch = self._nodes[str(asked["repositoryId"])], update["name"][11:]
        old, new = update["beforeOid"], update["afterOid"]
        self._refs[repo.lower(), branch] = new
        what = f"move the branch {branch} of {repo} to {new[:12]}, if it has {old[:12]}"
        return what, {"data": {"updateRefs": {"clientMutationId": None}}}

    _writes: ClassVar[tuple[tuple[str, Callable[..., Rehearsed]], ...]] = (
        (f"POST {_REPO}/forks", _fork),
        (f"POST {_REPO}/merge-upstream", _sync),
        (f"POST {_REPO}/git/blobs", _blob),
        (f"POST {_REPO}/git/trees", _tree),
        (f"POST {_REPO}/git/commits", _commit),
        (f"POST {_REPO}/git/refs", _ref),
        (f"PATCH {_REPO}/git/refs/heads/(.+)", _ref),
        (f"POST {_REPO}/pulls", _pull),
        (rf"PATCH {_REPO}/pulls/(\d+)", _edit),
        (rf"POST {_REPO}/issues/(\d+)/comments", _comment),
        ("POST /graphql", _graphql),
    )


def _ref_to(branch: str, sha: str) -> Body:
    return {"ref": f"refs/heads/{branch}", "object": {"sha": sha}}


def planned(requester: Requester) -> tuple[Planned, ...]:
    """Return what a requester would have sent; nothing of one that sends."""
    return tuple(requester.planned) if isinstance(requester, DryRun) else ()
