mtc help E0203
