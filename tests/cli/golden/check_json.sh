mtc check --json models/char.mt
