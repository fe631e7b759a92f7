#!/bin/sh
# The main job twice on the embedded images: as it is, and with all traffic compressed by 3LC.
# Usage: tools/demo.sh PATH-TO-TERSEWIRE
set -eu
tersewire=$1
steps=2000

echo "1 of 2: LeNet, 4 workers, one parameter server, 32-bit floats"
"$tersewire" train --steps $steps --codec fp32
echo
echo "2 of 2: the same with 3LC, s = 1.75"
"$tersewire" train --steps $steps --codec 3lc:s=1.75
