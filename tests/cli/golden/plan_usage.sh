mtc plan; echo $?
mtc plan models/char.mt --target rtx4099; echo $?
mtc plan models/char.mt --target cpu --vram 50%; echo $?
mtc plan models/char.mt --target cpu --vram 32M --micro-batch 5; echo $?
mtc plan models/char.mt --target cpu --vram 32M --micro-batch 0; echo $?
mtc plan models/char.mt --target cpu --vram 32M --chunks 0; echo $?
mtc plan models/char.mt --target cpu --vram 32M --emit wasm -q > /dev/null; echo $?
mtc plan models/char.mt --target cpu --vram 32M --why h.9; echo $?
mtc plan models/char.mt --target cpu --vram 32M -d 9; echo $?
mtc plan models/t5.mt --target h100 -q; echo $?
