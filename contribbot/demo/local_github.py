"""A fake GitHub on this machine, of one repository and account; unknown requests get a 501."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, cast

from pydantic import JsonValue

from contribbot import process

Json = dict[str, JsonValue]
_NONE: Final[Json] = {"nodes": [], "pageInfo": {"hasNextPage": False, "endCursor": None}}
#: The parts of a pull request's state that never change in the demo.
_QUIET: Final[Json] = {
    "state": "OPEN",
    "isInMergeQueue": False,
    "reviewDecision": None,
    "mergeCommit": None,
    "latestOpinionatedReviews": {"nodes": []},
    "statusCheckRollup": None,
    "commits": {"nodes": []},
    "comments": _NONE,
    "reviews": _NONE,
    "reviewThreads": _NONE,
    "timelineItems": {"nodes": []},
}


class LocalGitHub:
    """A repository and its pull requests; `ROUTES` maps each request to the answering method."""

    def __init__(self, store: Path, name: str, base: str) -> None:
        self.store, self.name, self.base = store, name, base
        self.pulls: list[Json] = []
        self.person: Json = {"login": name.partition("/")[0], "id": 1}

    def answer(self, request: str, body: Json) -> tuple[int, JsonValue]:
        """Return the status and the document that answer a request, such as `GET /user`."""
        known = request.replace(f"/repos/{self.name}", "REPO", 1)
        for pattern, act in self.ROUTES.items():
            if found := re.fullmatch(pattern, known):
                document = act(self, body, *found.groups())
                return (200, document) if document is not None else (404, {"message": "Not Found"})
        return 501, {"message": f"the demo's GitHub does not know {request}"}

    def git(self, *args: str, stdin: str = "", **env: str) -> str:
        """Run git in the repository."""
        env |= {"GIT_DIR": str(self.store), "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(self.store)}
        env = process.clean_environment(env)
        done = process.run(["git", *args], env=env, stdin=stdin.encode())
        return done.stdout.decode().strip()

    def _repository(self, _body: Json) -> Json:
        return {
            "full_name": self.name,
            "default_branch": "main",
            "archived": False,
            "node_id": "R",
            "html_url": f"{self.base}/{self.name}",
            "url": f"{self.base}/repos/{self.name}",
            "permissions": {"push": True},
        }

    def commit(self, name: str) -> Json:
        """Return a commit in the form that GitHub uses in branches and comparisons."""
        sha, tree, message = self.git("show", "-s", "--format=%H %T %B", name).split(" ", 2)
        return {"sha": sha, "commit": {"tree": {"sha": tree}, "message": message}}

    def _ref(self, _body: Json, name: str) -> Json | None:
        sha = self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{name}")
        return {"ref": f"refs/heads/{name}", "object": {"sha": sha}} if sha else None

    def _make_ref(self, body: Json) -> Json | None:
        self.git("update-ref", str(body["ref"]), str(body["sha"]), "")
        return self._ref({}, str(body["ref"]).removeprefix("refs/heads/"))

    def _contents(self, _body: Json, path: str) -> Json:
        content = base64.b64encode(f"{self.git('show', f'main:{path}')}\n".encode()).decode()
        sha = self.git("rev-parse", f"main:{path}")
        return {"type": "file", "path": path, "sha": sha, "encoding": "base64", "content": content}

    def _make_blob(self, body: Json) -> Json:
        content = base64.b64decode(str(body["content"])).decode()
        return {"sha": self.git("hash-object", "-w", "--stdin", stdin=content)}

    def _tree(self, _body: Json, sha: str) -> Json:
        rows = [row.split(maxsplit=3) for row in self.git("ls-tree", "-rt", sha).splitlines()]
        keys = ("mode", "type", "sha", "path")
        entries: list[JsonValue] = [{**dict(zip(keys, row, strict=True))} for row in rows]
        return {"sha": sha, "truncated": False, "tree": entries}

    def _make_tree(self, body: Json) -> Json:
        index = {"GIT_INDEX_FILE": f"{self.store}/index"}
        self.git("read-tree", str(body["base_tree"]), **index)
        for row in cast("list[Json]", body["tree"]):
            entry = f"{row['mode']},{row['sha']},{row['path']}"
            self.git("update-index", "--add", "--cacheinfo", entry, **index)
        return self._tree({}, self.git("write-tree", **index))

    def _make_commit(self, body: Json) -> Json:
        author, above = cast("dict[str, str]", body["author"]), cast("list[str]", body["parents"])
        env = {
            f"GIT_{who}_{key.upper()}": value
            for who in ("AUTHOR", "COMMITTER")
            for key, value in author.items()
        }
        words = (str(body["tree"]), *(f"-p{sha}" for sha in above))
        sha = self.git("commit-tree", *words, stdin=str(body["message"]), **env)
        return {
            **body,
            "sha": sha,
            "tree": {"sha": body["tree"]},
            "parents": [{"sha": parent} for parent in above],
        }

    def _compare(self, _body: Json, base: str, head: str) -> Json:
        sides = self.git("rev-list", "--left-right", "--count", f"{base}...{head}").split()
        behind, ahead = map(int, sides)
        status = ("identical", "behind", "ahead", "diverged")[bool(behind) + 2 * bool(ahead)]
        return {
            "status": status,
            "base_commit": self.commit(base),
            "ahead_by": ahead,
            "behind_by": behind,
        }

    def _open_pull(self, body: Json) -> Json:
        number, branch = len(self.pulls) + 1, str(body["head"]).partition(":")[2]
        url, here = f"{self.base}/repos/{self.name}", self._repository({})
        ends: Json = {
            end: {"ref": name, "sha": self.git("rev-parse", name), "repo": here}
            for end, name in (("head", branch), ("base", str(body["base"])))
        }
        now = datetime.now(UTC).isoformat()
        self.pulls.append(
            {
                **ends,
                "number": number,
                "state": "open",
                "draft": body["draft"],
                "labels": [],
                "title": body["title"],
                "body": body["body"],
                "merged_at": None,
                "closed_at": None,
                "node_id": "P",
                "user": self.person,
                "created_at": now,
                "updated_at": now,
                "url": f"{url}/pulls/{number}",
                "issue_url": f"{url}/issues/{number}",
                "html_url": f"{self.base}/{self.name}/pull/{number}",
            }
        )
        return self._pull({}, str(number))

    def _pull(self, _body: Json, number: str) -> Json:
        pull = self.pulls[int(number) - 1]
        head = str(cast("Json", pull["head"])["sha"])
        merge = ["git", f"--git-dir={self.store}", "merge-tree", "--write-tree", "main", head]
        return {**pull, "mergeable": process.run(merge, accept=(0, 1)).returncode == 0}

    def _graphql(self, body: Json) -> Json:
        number = cast("Json", body["variables"]).get("number")
        if number is None:
            return {"data": None}
        pull = self._pull({}, str(number))
        head, base = cast("Json", pull["head"]), cast("Json", pull["base"])
        behind = self._compare({}, str(base["ref"]), str(head["sha"]))["behind_by"]
        state: Json = {
            **_QUIET,
            "number": number,
            "url": pull["html_url"],
            "title": pull["title"],
            "isDraft": pull["draft"],
            "baseRefName": base["ref"],
            "baseRef": {"compare": {"behindBy": behind}},
            "headRefOid": head["sha"],
            "mergeable": "MERGEABLE" if pull["mergeable"] else "CONFLICTING",
            "mergeStateStatus": "CLEAN" if pull["mergeable"] else "DIRTY",
            "author": self.person,
        }
        place: Json = {"isArchived": False, "defaultBranchRef": {"name": "main"}}
        return {"data": {"repository": {**place, "pullRequest": state}}}

    ROUTES: ClassVar[Mapping[str, Callable[..., JsonValue]]] = {
        "GET /user": lambda hub, _: hub.person,
        "GET /search/issues": lambda hub, _: {
            "total_count": len(hub.pulls),
            "incomplete_results": False,
            "items": hub.pulls,
        },
        "POST /graphql": _graphql,
        "GET REPO": _repository,
        "GET REPO/branches/(.+)": lambda hub, _, name: {"name": name, "commit": hub.commit(name)},
        r"GET REPO/compare/(.+?)\.\.\.(.+)": _compare,
        "GET REPO/contents/(.+)": _contents,
        "GET REPO/git/ref/heads/(.+)": _ref,
        "GET REPO/git/trees/(.+)": _tree,
        "POST REPO/git/blobs": _make_blob,
        "POST REPO/git/trees": _make_tree,
        "POST REPO/git/commits": _make_commit,
        "POST REPO/git/refs": _make_ref,
        "GET REPO/pulls": lambda hub, _: hub.pulls,
        "POST REPO/pulls": _open_pull,
        r"GET REPO/pulls/(\d+)": _pull,
    }


class _Connection(http.server.BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    hub: LocalGitHub

    def log_message(self, *_args: object) -> None:
        """Do not log requests to standard error."""

    def _serve(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        request = f"{self.command} {self.path.partition('?')[0]}"
        status, document = self.hub.answer(request, json.loads(sent or b"{}"))
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _serve  # noqa: N815  the names that the base class calls


@contextlib.contextmanager
def serving(store: Path, name: str) -> Iterator[str]:
    """Serve a repository on 127.0.0.1 while the block runs; yield the server's URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Connection) as server:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        _Connection.hub = LocalGitHub(store, name, base)  # one server for each process
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield base
        finally:
            server.shutdown()
            thread.join()
