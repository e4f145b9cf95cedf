/* embed.h - text files inside the binary: EMBED_TEXT(prelude, "codegen/cuda/prelude.cu") defines the NUL-terminated
 * const char prelude[]. Paths are from the source folder; CMake rebuilds the object when the file changes. */
#ifndef MTC_EMBED_H
#define MTC_EMBED_H
#define EMBED_TEXT(name, path)                                     \
  extern const char name[];                                        \
  __asm__(".section .rodata\n.global " #name "\n" #name ":\n"      \
          ".incbin \"" MTC_SOURCE_ROOT "/" path "\"\n.byte 0\n.previous\n")
#endif
