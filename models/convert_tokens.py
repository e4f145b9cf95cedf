#!/usr/bin/env python3
"""Text to the files that mtc trains on, with a tokenizer of Hugging Face (tokenizer.json). See docs/data.md.

Token files hold little-endian u16 or u32 ids; --jsonl writes one object a line with ids and a loss mask."""
import argparse
import json
import os
import struct
import sys

HEADER_MAGIC, HEADER_INTS = 20240520, 256
CHUNK_LINES = 20000


def load_tokenizer(path):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        sys.exit("convert_tokens.py needs the package `tokenizers`: pip install tokenizers")
    return Tokenizer.from_file(path) if os.path.exists(path) else Tokenizer.from_pretrained(path)


def chunks(path):
    """Pieces of a text file that end at line ends, so that any size can be read."""
    with open(path, encoding="utf-8") as file:
        lines = []
        for line in file:
            lines.append(line)
            if len(lines) == CHUNK_LINES:
                yield "".join(lines)
                lines = []
        if lines:
            yield "".join(lines)


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def write_tokens(args, tokenizer):
    wide = tokenizer.get_vocab_size() > 1 << 16
    if wide and args.header:
        sys.exit("llm.c's header is for u16 files; this vocabulary needs u32: leave out --header")
    code, count = ("I" if wide else "H"), 0
    with open(args.out, "wb") as out:
        if args.header:
            out.write(bytes(4 * HEADER_INTS))
        for path in args.files:
            for text in chunks(path):
                ids = encode(tokenizer, text)
                out.write(struct.pack(f"<{len(ids)}{code}", *ids))
                count += len(ids)
            if args.separator is not None:
                out.write(struct.pack(f"<{code}", args.separator))
                count += 1
        if args.header:
            out.seek(0)
            out.write(struct.pack("<3i", HEADER_MAGIC, 1, count))
    print(f"{count} tokens, dtype = {'u32' if wide else 'u16'}, V = {tokenizer.get_vocab_size()}")


def sample_of(record, tokenizer, where):
    """Ids and mask of one record: the prompt is read, the completion is learnt."""
    if "text" in record:
        ids = encode(tokenizer, record["text"])
        return ids, [1] * len(ids)
    if "prompt" not in record or "completion" not in record:
        sys.exit(f"{where}: neither `text` nor `prompt` and `completion`")
    prompt, completion = encode(tokenizer, record["prompt"]), encode(tokenizer, record["completion"])
    return prompt + completion, [0] * len(prompt) + [1] * len(completion)


def write_jsonl(args, tokenizer):
    count = 0
    with open(args.out, "w", encoding="utf-8") as out:
        for path in args.files:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if not line.strip():
                        continue
                    ids, mask = sample_of(json.loads(line), tokenizer, f"{path}:{number}")
                    if args.separator is not None:
                        ids, mask = ids + [args.separator], mask + [1]
                    out.write(json.dumps({"tokens": ids, "mask": mask}) + "\n")
                    count += 1
    print(f"{count} samples, V = {tokenizer.get_vocab_size()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json, or a name on the Hugging Face hub")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--jsonl", action="store_true", help="samples with a loss mask instead of a token file")
    parser.add_argument("--header", action="store_true", help="write llm.c's header")
    parser.add_argument("--separator", type=int, metavar="ID", help="token that ends each file or sample")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.tokenizer)
    (write_jsonl if args.jsonl else write_tokens)(args, tokenizer)


if __name__ == "__main__":
    main()
