mtc check --json tests/diag/syntax_use.mt
