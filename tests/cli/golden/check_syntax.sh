mtc check tests/diag/syntax_brackets.mt
