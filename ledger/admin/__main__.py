"""`python -m ledger.admin` is the command `tailfold`."""

from ledger.admin import main

main()
