"""Reading repositories, and git's objects in them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from contribbot.errors import GitHubError, NotFoundError
from contribbot.github.answer import clean_line
from contribbot.github.base import Blob, Part
from contribbot.github.caller import part, slug
from contribbot.github.objects import blob_id
from contribbot.model.base import ObjectId
from contribbot.model.gitdata import Branch, Commit, Comparison, TreeEntry
from contribbot.model.github import Account, Repository, Said

#: Blobs that one GraphQL query asks for.
_TOGETHER: Final = 100
_ID: Final[TypeAdapter[str]] = TypeAdapter(ObjectId)


class _Entry(Said):
    """An entry of a listing; judged only where it is asked for (old trees have odd modes)."""

    path: str
    mode: str
    sha: ObjectId
    size: int | None = None


class _Listing(Said):
    tree: tuple[_Entry, ...]
    truncated: bool


class _Texts(Said):
    data: dict[str, dict[str, JsonValue] | None]


class _RefObject(Said):
    sha: ObjectId


class _Ref(Said):
    ref: str
    object: _RefObject


class _File(Blob):
    sha: ObjectId


_TEXTS: Final = TypeAdapter(_Texts)


class GitReads(Part):
    """The part of `Reader` that is about repositories and git."""

    def me(self) -> Account:
        """See `Reader.me`."""
        return self._get(Account, "/user")

    def repository(self, repository: str) -> Repository:
        """See `Reader.repository`."""
        return self._get(Repository, slug(repository))

    def branch(self, repository: str, branch: str) -> Branch:
        """See `Reader.branch`."""
        return self._get(Branch, f"{slug(repository)}/branches/{part(branch, slashes=True)}")

    def ref(self, repository: str, branch: str) -> str | None:
        """See `Reader.ref`."""
        path = f"{slug(repository)}/git/ref/heads/{part(branch, slashes=True)}"
        try:
            found = self._get(_Ref, path)
        except NotFoundError:
            return None
        return found.object.sha if found.ref == f"refs/heads/{branch}" else None

    def commit(self, repository: str, sha: str) -> Commit:
        """See `Reader.commit`."""
        return self._get(Commit, f"{slug(repository)}/git/commits/{part(sha)}")

    def compare(self, repository: str, base: str, head: str) -> Comparison:
        """See `Reader.compare`."""
        sides = f"{part(base, slashes=True)}...{part(head, slashes=True)}"
        # The commits and files that it also lists are of no use here: one, and not 250.
        answer = self._caller.get(f"{slug(repository)}/compare/{sides}", {"per_page": "1"})
        return self._caller.read(answer, TypeAdapter(Comparison))

    def tree(self, repository: str, tree: str, paths: Collection[str]) -> Mapping[str, TreeEntry]:
        """See `Reader.tree`."""
        wanted = set(paths)
        if not wanted:
            return {}
        path = f"{slug(repository)}/git/trees/{part(tree)}"
        answer = self._caller.get(path, {"recursive": "1"})
        listing = self._caller.read(answer, TypeAdapter(_Listing))
        if listing.truncated:
            return self._by_folder(repository, tree, wanted)
        return {
            one.path: _judged(one, one.path, answer.what)
            for one in listing.tree
            if one.path in wanted
        }

    def folder(self, repository: str, tree: str) -> tuple[TreeEntry, ...]:
        """Return the entries of one folder; `path` is the plain name of each."""
        what = f"{slug(repository)}/git/trees/{part(tree)}"
        listing = self._get(_Listing, what)
        if listing.truncated:
            raise GitHubError(f"GET {what}: a folder that is too large for GitHub to list")
        return tuple(_judged(one, one.path, f"GET {what}") for one in listing.tree)

    def _by_folder(
        self, repository: str, tree: str, wanted: Collection[str], above: str = ""
    ) -> dict[str, TreeEntry]:
        """Look into the folders on the way to the paths, one request each."""
        found: dict[str, TreeEntry] = {}
        here = {one.path: one for one in self.folder(repository, tree)}
        below: dict[str, set[str]] = {}
        for path in wanted:
            name, slash, _ = path.removeprefix(above).partition("/")
            if name not in here:
                continue
            if not slash:
                found[path] = here[name].model_copy(update={"path": path})
            elif here[name].is_folder:
                below.setdefault(name, set()).add(path)
        for name, inside in sorted(below.items()):
            found |= self._by_folder(repository, here[name].sha, inside, f"{above}{name}/")
        return found

    def blobs(self, repository: str, ids: Collection[str]) -> Mapping[str, bytes]:
        """See `Reader.blobs`."""
        wanted = sorted(set(ids))
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), _TOGETHER):
            found |= self._texts(repository, wanted[start : start + _TOGETHER])
        for one in wanted:
            if one not in found:
                found[one] = self._blob(repository, one)
        return found

    def file(self, repository: str, path: str, ref: str = "") -> bytes | None:
        """See `Reader.file`."""
        where = f"{slug(repository)}/contents/{part(path, slashes=True)}"
        try:
            answer = self._caller.get(where, {"ref": ref} if ref else None, conditional=True)
        except NotFoundError:
            return None
        if answer.body.lstrip().startswith(b"["):
            return None  # a folder
        found = self._caller.read(answer, TypeAdapter(_File))
        if found.encoding == "none":
            return self._blob(repository, found.sha)
        return _checked(found.decoded(answer.what), found.sha, answer.what)

    def _blob(self, repository: str, sha: str) -> bytes:
        """Read one blob by REST."""
        answer = self._caller.get(f"{slug(repository)}/git/blobs/{part(sha)}")
        found = self._caller.read(answer, TypeAdapter(Blob))
        return _checked(found.decoded(answer.what), sha, answer.what)

    def _texts(self, repository: str, ids: Collection[str]) -> dict[str, bytes]:
        """Read the blobs that are text in one GraphQL query; the others are missing."""
        plain = [one for one in ids if _is_id(one)]
        owner, _, name = repository.partition("/")
        variables: dict[str, JsonValue] = {"owner": owner, "name": name}
        answer = self._graphql(texts_query(plain), variables) if plain else None
        if answer is None:
            return {}
        there = self._caller.read(answer, _TEXTS).data.get("repository") or {}
        found = {}
        for number, one in enumerate(plain):
            content = _text(there.get(f"b{number}"))
            # What is no UTF-8 comes with other characters in its place.
            if content is not None and blob_id(content) == one:
                found[one] = content
        return found


def texts_query(ids: Sequence[str]) -> str:
    """Return the GraphQL query for the text of blobs: `b0` and so on."""
    asked = "\n".join(
        f'b{number}: object(oid: "{one}") {{ ... on Blob {{ text isTruncated }} }}'
        for number, one in enumerate(ids)
    )
    return (
        "query($owner: String!, $name: String!) "
        f"{{ repository(owner: $owner, name: $name) {{\n{asked}\n}} }}"
    )


def _text(said: JsonValue) -> bytes | None:
    """Return the content of a blob that GraphQL gives whole."""
    if not isinstance(said, dict) or said.get("isTruncated"):
        return None
    text = said.get("text")
    if isinstance(text, str):
        with contextlib.suppress(UnicodeEncodeError):
            return text.encode()
    return None


def _is_id(text: str) -> bool:
    try:
        _ID.validate_python(text)
    except ValidationError:
        return False
    return True


def _judged(one: _Entry, path: str, what: str) -> TreeEntry:
    try:
        return TreeEntry.model_validate(
            {"path": path, "mode": one.mode, "sha": one.sha, "size": one.size}
        )
    except ValidationError:
        pass
    raise GitHubError(
        f"{what}: {clean_line(path, 200)} has the odd mode {clean_line(one.mode, 20)}"
    )


def _checked(content: bytes, sha: str, what: str) -> bytes:
    if blob_id(content) != sha:
        raise GitHubError(f"{what}: the content is not the one that was asked for ({sha[:12]})")
    return content
