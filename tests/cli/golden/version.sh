mtc --version
