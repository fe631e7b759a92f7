// Fig. 10's decompression unit: a burst becomes the 32 bytes that it was made of. Two registers
// deep; both move where `enable` is high.
module decompression_unit #(
    parameter int SIDE = 1  // bits that travel beside a burst
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            enable,
    input  logic            in_valid,
    input  logic [    15:0] in_tags,
    input  logic [   255:0] in_data,
    input  logic [    47:0] in_offsets,     // 6 bits a lane: its first byte in in_data
    input  logic [     3:0] in_floats,
    input  logic [     1:0] in_rest_bytes,  // behind the floats; what is no float stays as it is
    input  logic [     4:0] in_layout,
    input  logic [SIDE-1:0] in_side,
    output logic            out_valid,
    output logic [   255:0] out_data,       // bytes that the burst does not have are 0
    output logic [SIDE-1:0] out_side
);
  logic [255:0] lanes;
  logic [ 15:0] tags;
  logic [  4:0] layout;
  logic valid;
  logic [SIDE-1:0] side;

  always_ff @(posedge clk) begin
    if (enable) begin
      for (int i = 0; i < 8; i = i + 1) begin
        lanes[32*i+:32] <= 32'(in_data >> {in_offsets[6*i+:6], 3'd0});
        tags[2*i+:2] <= in_tags[2*i+:2];
        // Like a float that was not compressed, but for the bytes that it does not have.
        if (4'(i) == in_floats) begin
          lanes[32*i+:32] <= 32'(in_data >> {in_offsets[6*i+:6], 3'd0}) &
              (32'd1 << {in_rest_bytes, 3'd0}) - 32'd1;
          tags[2*i+:2] <= 2'd3;
        end
        if (4'(i) > in_floats) tags[2*i+:2] <= 2'd0;
      end
      layout <= in_layout;
      side <= in_side;
    end
  end

  logic [255:0] values;
  for (genvar i = 0; i < 8; i = i + 1) begin : g_block
    decompression_block block (
        .tag(tags[2*i+:2]), .data(lanes[32*i+:32]), .bounded(layout[4]), .bound_bits(layout[3:0]),
        .value(values[32*i+:32]));
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      out_data <= values;
      out_side <= side;
    end
    if (rst) begin
      valid <= 1'b0;
      out_valid <= 1'b0;
    end else if (enable) begin
      valid <= in_valid;
      out_valid <= valid;
    end
  end
endmodule
