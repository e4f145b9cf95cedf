mtc fmt --help
