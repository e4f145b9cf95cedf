mtc help plan
