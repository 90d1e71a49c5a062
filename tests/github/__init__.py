"""A local GitHub: HTTP on 127.0.0.1, backed by real bare git repositories.

- `state.py`: users, repositories, issues as dataclasses, and what people do there;
  `state_actions.py`: the same of GitHub Actions; `gitdata.py`: git's refs and objects.
- `render.py`, `graph.py`: the state in GitHub's JSON; `routes_*.py`: the handlers of requests.
- `wire.py`: `@Route`, `Request`, `Answer`, `GitHubFault`, and permissions.
- `faults.py`: what goes wrong on the way to a handler and back.
- `handle.py`: `GitHub`, the state with its server, as the fixture `github` gives it.
"""
