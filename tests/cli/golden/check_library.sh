mtc check models/std/nn.mt
