"""A local GitHub: HTTP on 127.0.0.1, backed by real bare git repositories.

- `state.py`: what is known besides git, as dataclasses; `gitdata.py`: git itself.
- `render.py`: what is known in GitHub's words; `routes_*.py`: the handlers.
- `wire.py`: `@Route`, `Request`, `Answer`, `GitHubFault`; who may do what.
- `server.py`: `LocalServer`, `Hook` (before and after each request), the log `Logged`.
- `pulling.py`, `state_social.py`, `state_actions.py`: what people and machines do there.
- `handle.py`: `GitHub`, that server with what a test does behind its back.
"""
