"""`python -m kesin.cli`, for where the `kesin` script is not on the path."""

from kesin.cli import main

main()
