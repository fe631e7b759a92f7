#!/bin/sh
# spare_libraries.sh LIBRARY FOLDER: Debian's libtorch asks for OpenCV, FFmpeg and others, of which it uses no symbol,
# and with them for 220 libraries: a third of the time that a program takes to start. Fills FOLDER with empty ones of
# their names, for LD_LIBRARY_PATH; with none where something would be missing then.
set -eu
library=$1 folder=$2

rm -rf "$folder"
mkdir -p "$folder"
for name in $(objdump -p "$library" | sed -n 's/^ *NEEDED *//p' | grep -E '^lib(opencv_|av|sw|zmq|leveldb|lmdb)'); do
  echo | ${CXX:-c++} -x c++ -shared -o "$folder/$name" -Wl,-soname,"$name" -
done
if LD_LIBRARY_PATH=$folder ldd -r "$library" 2>&1 | grep -qE 'undefined symbol|not found'; then
  rm -f "$folder"/*
fi
