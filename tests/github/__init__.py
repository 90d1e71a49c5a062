"""A local GitHub: HTTP on 127.0.0.1, backed by real bare git repositories.

- `state.py`: users, repositories, issues as dataclasses; `gitdata.py`: git's refs and objects.
- `render.py`: the state in GitHub's JSON; `routes_*.py`: the handlers of requests.
- `wire.py`: `@Route`, `Request`, `Answer`, `GitHubFault`, and permissions.
- `server.py`: `LocalServer`, `Hook` (before and after each request), the log `Logged`.
- `pulling.py`, `state_actions.py`: the actions of people and machines, for handlers and tests.
- `handle.py`: `GitHub`, the server with methods that change its state without requests.
"""
