#!/bin/sh
# Area and clock of the modules of rtl/.
#
# usage: measure.sh area TOP     LUTs, flip-flops and block RAM on Xilinx's 7 series, by yosys
#        measure.sh clock TOP    placed and routed on Lattice's iCE40 HX8K by nextpnr: every bit of
#                                TOP's ports in a register, fed and read serially (it has no
#                                hundreds of pins)
set -eu
if [ $# -ne 2 ]; then
  sed -n '4,7s/^# //p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $1 in
  area)
    yosys -q -p "read_verilog -sv $here/*.sv; synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top $2;
      tee -o $work/area stat -tech xilinx" >/dev/null
    grep -E 'FDRE|FDSE|LUT[1-6]|CARRY4|MUXF|RAMB|RAM32|RAM64|SRL|LCs' "$work/area"
    ;;
  clock)
    yosys -q -p "read_verilog -sv $here/*.sv; hierarchy -top $2; proc; json -o $work/ports.json" >/dev/null
    python3 "$here/serial_ports.py" "$2" "$work/ports.json" >"$work/serial_ports.sv"
    yosys -q -p "read_verilog -sv $here/*.sv $work/serial_ports.sv;
      synth_ice40 -abc9 -top serial_ports -json $work/net.json" >/dev/null
    nextpnr-ice40 --hx8k --package ct256 --json "$work/net.json" --freq 100 --timing-allow-fail \
      --asc "$work/net.asc" 2>"$work/log" || { tail -n 5 "$work/log"; exit 1; }
    grep 'ICESTORM_LC:' "$work/log" | tail -n 1
    grep 'Max frequency' "$work/log" | tail -n 1
    ;;
  *)
    echo "measure.sh: '$1' is neither area nor clock" >&2
    exit 2
    ;;
esac
