"""A local GitHub: HTTP on 127.0.0.1, backed by real bare git repositories.

- `state.py`: what is known besides git, as dataclasses; `gitdata.py`: git itself.
- `wire.py`: `@route`, `Request`, `Answer`, `GitHubFault`, `invalid`, `not_found`, `page`.
- `server.py`: `LocalServer`, `Hook` (before and after each request), the log `Logged`.
- `validate.py`: the hook that compares all with GitHub's description, in this folder's tests;
  `sent.py`: what may be sent elsewhere, which this folder's tests send to a validated one.
- `routes_*.py`, `graphql.py`: the handlers; each such module is imported by itself.
- `render.py`: users, repositories, and URLs as GitHub writes them.
- `handle.py`: `GitHub`, what the fixture `github` gives to a test.
"""
