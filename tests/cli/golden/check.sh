mtc check models/gpt2.mt
mtc check models/gpt2.mt --preset medium
mtc check models/gpt2.mt -D L=2 -D D=64 -D H=4
mtc check models/llama.mt --preset llama3_8b
mtc check models/llama_lora.mt models/bert_cls.mt models/t5.mt models/resnet50.mt models/char.mt
