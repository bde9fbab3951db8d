"""``python -m forwardpass`` is the command line."""

from forwardpass.cli import main

main()
