# Each wrong command line gets one sentence, a correction where one is near, and exit code 2.
try() { mtc "$@"; echo "$? $*"; }
try plann models/gpt2.mt
try models/gpt2.mt
try check
try compile a.mt b.mt
try plan models/gpt2.mt --vrm 24G
try plan models/gpt2.mt --vram 24Q
try plan models/gpt2.mt --vram
try plan models/gpt2.mt --vram -1
try plan models/gpt2.mt --json=yes
try plan models/gpt2.mt -D L
try plan models/gpt2.mt --set =3
try plan models/gpt2.mt --recompute som
try train models/gpt2.mt --device cpuu
try train models/gpt2.mt --steps 1.5
try train models/gpt2.mt --why h.0
try sample run --temperature hot
try --vram 24G plan models/gpt2.mt
try fmt -z models/gpt2.mt
try explain E9999
try help nonsuch
try fmt -o x a.mt b.mt
