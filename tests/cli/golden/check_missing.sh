mtc check models/none.mt
