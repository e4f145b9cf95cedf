mtc explain e0207
