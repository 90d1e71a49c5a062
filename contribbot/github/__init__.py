"""GitHub, over PyGithub: `client.connect` opens a client."""
