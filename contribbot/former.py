"""Commands, options and keys of files that earlier releases had, each with its replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Replacements of commands, by full name, such as `numerics floor`.
COMMANDS: Final[Mapping[str, str]] = {
    "evidence prune": "delete with `git rm` the files that `contribbot evidence check` calls stale",
    "numerics floor": "judge by the same precision's own error: a [[numerics]] (docs/numerics.md)",
    "reproducer": "`contribbot body NAME` has the text; `reproducer` in patch.toml, lines to paste",
    "runners workflows pin": "`uv pip compile --generate-hashes` writes the file: docs/runners.md",
    "runners workflows run": "jobs run `contribbot verify`: install the workflows again with "
    "`contribbot runners workflows install`",
}
#: Replacements of options, by command and option, such as `verify --with`.
OPTIONS: Final[Mapping[str, str]] = {
    "attest --show": "contribbot open-pr NAME --dry-run names what is missing, an attestation too",
    "body --template": "the template in force is filled; `templates/NAME.md.j2` replaces it",
    "doctor --import": "a torch that a program patches is not looked for any more",
    "follow --all": "the page of the pull request has every thread and comment",
    "follow --wait": "it waits for GitHub at most 15 minutes in all",
    "gate --wait": "it waits for GitHub at most 15 minutes in all",
    "open-pr --wait": "it waits for GitHub at most 15 minutes in all",
    "edit --all": "edit the patches one by one: a refresh carries those above along",
    "new --after": "contribbot queue reorder NAME --after PATCH",
    "new --author": "commit the diff in a clone, and name the range: new NAME REPO A..B",
    "new --dry-run": "make it, and look: `contribbot undo` takes it back",
    "new --pull": "state `pull` in patch.toml, or take them from GitHub: new NAME OWNER/REPO#N",
    "queue export --alone": "its files are mails already: git am patches/NAME/*.patch",
    "queue export --format": "an mbox is written; `git am` and `git diff` make a diff of it",
    "queue retire --dry-run": "do it, and look: `contribbot undo` takes it back",
    "rebase --at": "the tree is in .contribbot/edit/PATCH of the queue; `rebase` names it",
    "runners collect --again": "start the failed jobs again on the run's page, and collect then",
    "runners collect --from": "name the run by its number alone: GitHub has its records",
    "runners workflows install --branch": "write it into verify.yml: it stays",
    "runners workflows install --check": "commit, install, and look at `git diff`",
    "runners workflows install --force": "commit first: what is committed is written over",
    "verify --junit": "`verify --json` has every outcome with its reason and seconds",
    "verify --leave-one-out": "take the patch out of `depends_on`, and verify again",
    "verify --with": "compare two sweeps by `emulate --compare` (docs/sweeps.md)",
}
#: Replacements of keys, by file and key, such as `patch.toml numerics.kernels`.
KEYS: Final[Mapping[str, str]] = {
    "patch.toml checks.kernels": "delete it: a check that the patched kernel does not decide is "
    "green without the change, and proves nothing",
    "patch.toml bench.compile": "delete it: call torch.compile in the bench file",
    "patch.toml numerics.compile": "delete it: call torch.compile in the check",
    "patch.toml expires_when.dependency": "delete it; say in `solution` what the patch waits for",
    "patch.toml numerics.kernels": "delete it: a check that the patched kernel does not decide is "
    "green without the change, and proves nothing",
    "runners.toml hosted.count": "delete it: GitHub limits how many jobs run at the same time",
    "runners.toml runners.cost": "delete it: the first set in the file that fits gets a patch",
    "runners.toml runners.count": "delete it: GitHub hands jobs to the runners that are free",
    "runners.toml runners.under": "delete this set: `contribbot emulate` runs without a GPU",
    "contributing body.budget": "leave it out: the gate fails beyond 400 words, for each upstream",
    "contributing issue_first": "leave it out: the gate says how to open an issue or find one",
    "contributing tolerances": "leave it out: `attest` asks a person about tolerances and skips",
    "upstreams hipify.cuda_only": "leave it out; a compile finds headers that ROCm lacks",
    "upstreams hipify.defined": "leave it out; a compile finds headers that ROCm lacks",
    "upstreams hipify.undefined": "leave it out; a compile finds headers that ROCm lacks",
}
