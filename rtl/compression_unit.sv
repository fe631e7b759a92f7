// Fig. 9's compression unit: 32 bytes of payload become a burst of 2 to 34 bytes, the tags of eight
// values and then what each of them keeps. The last burst of a packet may be short: its tags past
// the last value are 0, and one to three bytes that are no float stay as they are behind it.
// One group in and one burst out a cycle, five registers deep; all move where `enable` is high.
module compression_unit #(
    parameter int SIDE = 1  // bits that travel beside a burst
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            enable,
    input  logic            in_valid,
    input  logic [   255:0] in_data,     // bytes at and above in_bytes are 0
    input  logic [     5:0] in_bytes,    // 1 to 32
    input  logic            bounded,
    input  logic [     3:0] bound_bits,
    input  logic [SIDE-1:0] in_side,
    output logic            out_valid,
    output logic [   271:0] out_burst,
    output logic [     5:0] out_bytes,   // 1 to 34
    output logic [SIDE-1:0] out_side
);
  localparam int BLOCK_REGISTERS = 2;
  localparam int TREE_REGISTERS = 3;
  localparam int REGISTERS = BLOCK_REGISTERS + TREE_REGISTERS;

  logic [ 15:0] block_tags;
  logic [255:0] block_data;
  for (genvar i = 0; i < 8; i = i + 1) begin : g_block
    compression_block block (
        .clk, .enable, .bounded, .bound_bits,
        .value(in_data[32*i+:32]), .tag(block_tags[2*i+:2]), .data(block_data[32*i+:32]));
  end

  // What goes along with the blocks: how many bytes there are, and those behind the last float.
  logic [ 5:0] bytes_at[1:BLOCK_REGISTERS];
  logic [31:0] rest_at [1:BLOCK_REGISTERS];
  logic [31:0] rest;
  always_comb begin
    rest = 32'd0;
    for (int i = 0; i < 8; i = i + 1) if (in_bytes[5:2] == 4'(i)) rest = in_data[32*i+:32];
  end
  always_ff @(posedge clk) begin
    if (enable) begin
      bytes_at[1] <= in_bytes;
      rest_at[1] <= rest;
      bytes_at[2] <= bytes_at[1];
      rest_at[2] <= rest_at[1];
    end
  end

  // Lane i holds a float's bytes, the rest, or nothing.
  logic [  3:0] floats;
  logic [  1:0] rest_bytes;
  logic [ 15:0] tags;
  logic [255:0] lanes;
  logic [ 23:0] sizes;
  always_comb begin
    floats = bytes_at[BLOCK_REGISTERS][5:2];
    rest_bytes = bytes_at[BLOCK_REGISTERS][1:0];
    for (int i = 0; i < 8; i = i + 1) begin
      if (4'(i) < floats) begin
        tags[2*i+:2] = block_tags[2*i+:2];
        lanes[32*i+:32] = block_data[32*i+:32];
        sizes[3*i+:3] = block_tags[2*i+:2] == 2'd3 ? 3'd4 : {1'b0, block_tags[2*i+:2]};
      end else begin
        tags[2*i+:2] = 2'd0;
        lanes[32*i+:32] = 4'(i) == floats ? rest_at[BLOCK_REGISTERS] : 32'd0;
        sizes[3*i+:3] = 4'(i) == floats ? {1'b0, rest_bytes} : 3'd0;
      end
    end
  end

  logic [255:0] aligned;
  logic [  5:0] aligned_bytes;
  shifter_tree tree (.clk, .enable, .lanes, .sizes, .aligned, .bytes(aligned_bytes));

  logic [15:0] tags_at [1:TREE_REGISTERS];
  logic        bare_at [1:TREE_REGISTERS];  // no float, so no tags
  logic        valid_at[1:REGISTERS];
  logic [SIDE-1:0] side_at [1:REGISTERS];
  always_ff @(posedge clk) begin
    if (enable) begin
      tags_at[1] <= tags;
      bare_at[1] <= floats == 4'd0;
      for (int i = 2; i <= TREE_REGISTERS; i = i + 1) begin
        tags_at[i] <= tags_at[i-1];
        bare_at[i] <= bare_at[i-1];
      end
      side_at[1] <= in_side;
      for (int i = 2; i <= REGISTERS; i = i + 1) side_at[i] <= side_at[i-1];
    end
    for (int i = 1; i <= REGISTERS; i = i + 1) begin
      if (rst) valid_at[i] <= 1'b0;
    end
    if (!rst && enable) begin
      valid_at[1] <= in_valid;
      for (int i = 2; i <= REGISTERS; i = i + 1) valid_at[i] <= valid_at[i-1];
    end
  end

  always_comb begin
    out_valid = valid_at[REGISTERS];
    out_side = side_at[REGISTERS];
    if (bare_at[TREE_REGISTERS]) begin
      out_burst = {16'd0, aligned};
      out_bytes = aligned_bytes;
    end else begin
      out_burst = {aligned, tags_at[TREE_REGISTERS]};
      out_bytes = aligned_bytes + 6'd2;
    end
  end
endmodule
