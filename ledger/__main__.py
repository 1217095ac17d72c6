"""`python -m ledger` is the command `tailfold`."""

from ledger.admin import main

main()
