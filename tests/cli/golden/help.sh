mtc help
