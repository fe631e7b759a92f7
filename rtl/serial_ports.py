#!/usr/bin/env python3
"""Writes a module with three pins around TOP, for placing and routing what has hundreds of ports.

usage: serial_ports.py TOP PORTS.json

A shift register feeds every input of TOP, and another, loaded in parallel, holds every output, so
that all paths through TOP end in registers. PORTS.json is what yosys' `json` wrote of it.
"""

import json
import sys


def main():
    top, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        ports = json.load(file)["modules"][top]["ports"]
    widths = {"input": 0, "output": 0}
    connections = []
    for name, port in ports.items():
        if name == "clk":
            connections.append(".clk(clk)")
            continue
        at, width = widths[port["direction"]], len(port["bits"])
        vector = "fed" if port["direction"] == "input" else "made"
        connections.append(f".{name}({vector}[{at + width - 1}:{at}])")
        widths[port["direction"]] += width
    print(f"""module serial_ports (input logic clk, input logic in, output logic out);
  logic [{widths["input"] - 1}:0] fed;
  logic [{widths["output"] - 1}:0] made, held;
  logic load;
  {top} inner ({", ".join(connections)});
  always_ff @(posedge clk) begin
    fed <= {{fed[{widths["input"] - 2}:0], in}};
    load <= in;
    held <= load ? made : {{held[{widths["output"] - 2}:0], 1'b0}};
    out <= held[{widths["output"] - 1}];
  end
endmodule""")


if __name__ == "__main__":
    main()
