mtc help op dot
