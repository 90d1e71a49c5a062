"""The program `python -m contribbot`."""

from contribbot.cli.main import main

if __name__ == "__main__":
    main()
