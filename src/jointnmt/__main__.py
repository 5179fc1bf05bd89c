"""`python -m jointnmt`: the command line."""

from jointnmt.cli.main import main

if __name__ == "__main__":
    main()
