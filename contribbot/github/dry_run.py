"""A requester that sends nothing but reads, and writes down what it would send."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from github.Repository import Repository
from pydantic import JsonValue

from contribbot.errors import GitHubError
from contribbot.github.auth import Server, Token
from contribbot.github.git_data import read_folder
from contribbot.github.git_objects import FOLDER, Author, Entry, blob_id, commit_id, tree_id
from contribbot.github.requester import JSON, Requester, is_write
from contribbot.github.waits import Waits

#: Stands for an id that only GitHub could have given.
UNKNOWN: Final = "0" * 40

Body = dict[str, JsonValue]
#: What a write does, in a line, and what GitHub would answer.
Said = tuple[str, Body]


@dataclass(frozen=True)
class Planned:
    """A request that would be sent."""

    method: str
    path: str
    summary: str


class DryRun(Requester):
    """What is rehearsed is there for later reads; numbers are 0.

    The ids of blobs, trees and commits are those that GitHub would give, as far as the base
    can be read.
    """

    def __init__(self, server: Server, token: Token, waits: Waits, cache: Path | None) -> None:
        super().__init__(server, token, waits, cache)
        self.planned: list[Planned] = []
        self._refs: dict[tuple[str, str], str] = {}
        #: The repository to read a tree from, and the folders of trees that were made here.
        self._sources: dict[str, str] = {}
        self._trees: dict[str, tuple[Entry, ...]] = {}
        #: What ids of GraphQL are about.
        self._nodes: dict[str, str] = {}
        repo = r"/repos/(?P<repo>[^/]+/[^/]+)"
        self._writes: tuple[tuple[str, Callable[[str, str, Body], Said]], ...] = (
            (f"POST {repo}/forks", self._fork),
            (f"POST {repo}/merge-upstream", self._sync),
            (f"POST {repo}/git/blobs", self._blob),
            (f"POST {repo}/git/trees", self._tree),
            (f"POST {repo}/git/commits", self._commit),
            (f"POST {repo}/git/(?P<rest>refs)", self._ref),
            (f"PATCH {repo}/git/refs/heads/(?P<rest>.+)", self._ref),
            (f"POST {repo}/pulls", self._pull),
            (rf"PATCH {repo}/pulls/(?P<rest>\d+)", self._edit),
            (rf"POST {repo}/issues/(?P<rest>\d+)/comments", self._comment),
            ("POST /(?P<repo>graphql)", self._graphql),
        )

    def send(
        self, verb: str, url: str, parameters: dict[str, object] | None,
        headers: dict[str, str], content: object = None, *, follow: bool = True,
    ) -> tuple[int, dict[str, str], str]:  # fmt: skip
        """Send a read; write down anything else, and answer as GitHub would."""
        path, body = self.path_of(url), cast("Body", content or {})
        repo, _, branch = path.removeprefix("/repos/").partition("/git/ref/heads/")
        if verb == "GET" and (sha := self._refs.get((repo.lower(), branch))):
            known: Body = {"ref": f"refs/heads/{branch}", "object": {"sha": sha}}
            return 200, {}, json.dumps(known)
        if not is_write(f"{verb} {path}", content):
            found = super().send(verb, url, parameters, headers, content, follow=follow)
            self._learn(path, found[2])
            return found
        for pattern, answer in self._writes:
            match = re.fullmatch(pattern, f"{verb} {path}")
            if match is not None:
                summary, said = answer(match["repo"], match.groupdict().get("rest", ""), body)
                self.planned.append(Planned(verb, path, " ".join(summary.split())))
                return 201, {}, json.dumps(said)
        raise GitHubError(f"{verb} {path}: nobody has said what a dry run makes of it")

    def _learn(self, path: str, text: str) -> None:
        """Note what a read tells of where things are."""
        repo, _, tree = path.removeprefix("/repos/").partition("/git/trees/")
        if tree:
            self._sources.setdefault(tree, repo)
        match = re.fullmatch(r"/repos/([^/]+/[^/]+)(/pulls(/\d+)?)?", path)
        if match and text.startswith(("{", "[")):
            said = json.loads(text)
            for one in said if isinstance(said, list) else [said]:
                name = f"{match[1]}#{one['number']}" if match[2] else one["full_name"]
                self._nodes[one["node_id"]] = name

    def _read(self, path: str) -> Body:
        return cast("Body", json.loads(super().send("GET", path, None, {"Accept": JSON})[2]))

    def _fork(self, repo: str, _rest: str, _body: Body) -> Said:
        upstream, login = self._read(f"/repos/{repo}"), self._read("/user")["login"]
        name = f"{login}/{upstream['name']}"
        self._refs[name.lower(), str(upstream["default_branch"])] = UNKNOWN
        self._nodes[name] = name
        made: Body = {
            "full_name": name, "url": f"{self.base_url}/repos/{name}", "node_id": name,
            "html_url": f"{self.server.web}/{name}",
        }  # fmt: skip
        return f"fork {repo} as {name}", {**upstream, **made}

    def _sync(self, repo: str, _rest: str, body: Body) -> Said:
        return f"bring {body['branch']} of {repo} up to date", {"merge_type": "fast-forward"}

    def _blob(self, _repo: str, _rest: str, body: Body) -> Said:
        content = base64.b64decode(str(body["content"]))
        sha = blob_id(content)
        return f"store a file of {len(content)} bytes as {sha[:12]}", {"sha": sha}

    def _tree(self, repo: str, _rest: str, body: Body) -> Said:
        base = str(body.get("base_tree") or "")
        changes = {
            path: Entry(path, str(one["mode"]), str(one["sha"] or ""))
            for one in cast("list[Body]", body["tree"]) if (path := str(one["path"]))
        }  # fmt: skip
        source = self._sources.get(base, repo)
        try:
            sha = self._made(source, base, changes)
        except GitHubError:
            sha = UNKNOWN  # the base cannot be read
        self._sources.setdefault(sha, source)
        return f"store the tree {sha[:12]}: {', '.join(changes)}", {"sha": sha}

    def _commit(self, _repo: str, _rest: str, body: Body) -> Said:
        who = cast("dict[str, str]", body["author"])
        author = Author(who["name"], who["email"], datetime.fromisoformat(who["date"]))
        message, parents = str(body["message"]), cast("list[str]", body["parents"])
        sha = commit_id(message, str(body["tree"]), parents, author)
        return f"store the commit {sha[:12]}: {message.partition(chr(10))[0]}", {"sha": sha}

    def _ref(self, repo: str, rest: str, body: Body) -> Said:
        made = str(body.get("ref", "")).removeprefix("refs/heads/")
        branch, sha = made or rest, str(body["sha"])
        self._refs[repo.lower(), branch] = sha
        verb, to = ("make", "at") if made else ("move", "to")
        forced = ", forced" if body.get("force") else ""
        said: Body = {"ref": f"refs/heads/{branch}", "object": {"sha": sha}}
        return f"{verb} the branch {branch} of {repo} {to} {sha[:12]}{forced}", said

    def _pull(self, repo: str, _rest: str, body: Body) -> Said:
        now, head = datetime.now(UTC).isoformat(), str(body["head"])
        kind = "a draft of a pull request" if body["draft"] else "a pull request"
        said: Body = {
            **body, "number": 0, "state": "open", "url": f"{self.base_url}/repos/{repo}/pulls/0",
            "html_url": f"{self.server.web}/{repo}/pulls", "created_at": now, "updated_at": now,
            "head": {"ref": head.partition(":")[2], "sha": UNKNOWN},
            "base": {"ref": body["base"], "sha": UNKNOWN},
        }  # fmt: skip
        return f"open {kind} of {head} to {repo}: {body['title']}", said

    def _edit(self, repo: str, number: str, body: Body) -> Said:
        said = {**self._read(f"/repos/{repo}/pulls/{number}"), **body}
        return f"change {', '.join(body)} of {repo}#{number}", said

    def _comment(self, repo: str, number: str, body: Body) -> Said:
        page, now = f"{self.server.web}/{repo}/pull/{number}", datetime.now(UTC).isoformat()
        said: Body = {**body, "id": 0, "html_url": page, "created_at": now, "updated_at": now}
        return f"comment on {repo}#{number}", said

    def _graphql(self, _repo: str, _rest: str, body: Body) -> Said:
        asked = cast("dict[str, Body]", body["variables"])["input"]
        if "markPullRequestReadyForReview" in str(body["query"]):
            ready: Body = {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}
            return f"mark {self._nodes[str(asked['pullRequestId'])]} ready for review", {
                "data": ready
            }
        (update,) = cast("list[dict[str, str]]", asked["refUpdates"])
        repo, branch = self._nodes[str(asked["repositoryId"])], update["name"][11:]
        old, new = update["beforeOid"], update["afterOid"]
        self._refs[repo.lower(), branch] = new
        what = f"move the branch {branch} of {repo} to {new[:12]}, if it has {old[:12]}"
        return what, {"data": {"updateRefs": {"clientMutationId": None}}}

    def _made(self, repo: str, base: str, changes: dict[str, Entry]) -> str:
        """Work out the id of a tree with changes, folder by folder."""
        here = {one.path: one for one in self._folder(repo, base)} if base else {}
        below: dict[str, dict[str, Entry]] = {}
        for path, change in changes.items():
            name, slash, rest = path.partition("/")
            if slash:
                below.setdefault(name, {})[rest] = change
            elif not change.sha:
                here.pop(name, None)
            else:
                here[name] = Entry(name, change.mode, change.sha)
        for name, inside in below.items():
            old = here.get(name)
            sha = self._made(repo, old.sha if old and old.mode == FOLDER else "", inside)
            here[name] = Entry(name, FOLDER, sha)
            if not self._trees[sha]:
                del here[name]  # git has no empty folders
        made = tree_id(here.values())
        self._trees[made] = tuple(here.values())
        return made

    def _folder(self, repo: str, tree: str) -> tuple[Entry, ...]:
        if tree not in self._trees:
            place = Repository(self, {}, {"url": f"/repos/{repo}"}, completed=False)
            self._trees[tree] = read_folder(place, tree)
        return self._trees[tree]


def planned(requester: Requester) -> tuple[Planned, ...]:
    """Return what a requester would have sent; nothing of one that sends."""
    return tuple(requester.planned) if isinstance(requester, DryRun) else ()
