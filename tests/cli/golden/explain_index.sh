mtc explain
