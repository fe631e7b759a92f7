// Passes words on with the ones' complement sum (RFC 1071) of their packet's so far, as big-endian
// pairs of bytes. Two registers deep.
module running_sum #(
    parameter int SIDE = 1  // bits that travel beside a word
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            in_valid,
    output logic            in_ready,
    input  logic [   255:0] in_data,  // bytes behind the packet's end are 0
    input  logic            in_last,
    input  logic [SIDE-1:0] in_side,
    output logic            out_valid,
    input  logic            out_ready,
    output logic [   255:0] out_data,
    output logic            out_last,
    output logic [SIDE-1:0] out_side,
    output logic [    15:0] out_sum   // up to this word
);
  logic [19:0] pairs;  // 16 numbers of 16 bits
  always_comb begin
    pairs = 20'd0;
    for (int i = 0; i < 16; i = i + 1) pairs = pairs + {4'd0, in_data[16*i+:8], in_data[16*i+8+:8]};
  end

  logic mid_valid, mid_last, is_first;
  logic [255:0] mid_data;
  logic [SIDE-1:0] mid_side;
  logic [19:0] mid_pairs;
  logic [20:0] total;
  logic [16:0] folded;
  always_comb begin
    in_ready = !out_valid || out_ready;
    total = {1'b0, mid_pairs} + {5'd0, is_first ? 16'd0 : out_sum};
    folded = {1'b0, total[15:0]} + {12'd0, total[20:16]};
  end

  always_ff @(posedge clk) begin
    if (in_ready) begin
      mid_data <= in_data;
      mid_last <= in_last;
      mid_side <= in_side;
      mid_pairs <= pairs;
      if (mid_valid) begin
        out_data <= mid_data;
        out_last <= mid_last;
        out_side <= mid_side;
        out_sum <= folded[15:0] + {15'd0, folded[16]};
      end
    end
    if (rst) begin
      mid_valid <= 1'b0;
      out_valid <= 1'b0;
      is_first <= 1'b1;
    end else if (in_ready) begin
      mid_valid <= in_valid;
      out_valid <= mid_valid;
      if (mid_valid) is_first <= mid_last;
    end
  end
endmodule
