// A packet's payload, compressed: how long it was, then what codec 7 makes of its floats, then the
// bytes that are no float (spec/wire-format.md, "Packets of a network card").
module payload_compressor (
    input  logic         clk,
    input  logic         rst,
    input  logic [  4:0] layout,        // codec 7's; a packet keeps what it began with
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [255:0] in_data,       // bytes at and above in_bytes are 0
    input  logic [  5:0] in_bytes,      // 1 to 32; 32 but for the last
    input  logic         in_last,
    input  logic         in_truncated,  // with in_last: the payload is not all there
    input  logic [ 15:0] in_total,      // bytes of the payload
    input  logic [ 15:0] in_sum,        // of the payload, with in_last
    output logic         out_valid,
    input  logic         out_ready,
    output logic [255:0] out_data,
    output logic         out_last,
    // With out_last:
    output logic         out_ok,        // smaller than it was, and whole
    output logic [ 15:0] out_bytes,
    output logic [ 15:0] in_sum_again   // the payload's sum before
);
  logic is_first;
  logic [4:0] packet_layout, layout_now;
  logic enable;
  assign layout_now = is_first ? layout : packet_layout;
  assign in_ready = enable;
  always_ff @(posedge clk) begin
    if (rst) begin
      is_first <= 1'b1;
    end else if (in_valid && enable) begin
      is_first <= in_last;
      packet_layout <= layout_now;
    end
  end

  localparam int SIDE = 1 + 16 + 16 + 5 + 1;
  logic burst_valid, burst_last, burst_truncated;
  logic [271:0] burst;
  logic [  5:0] burst_bytes;
  logic [ 15:0] burst_total, burst_sum;
  logic [  4:0] burst_layout;
  compression_unit #(
      .SIDE(SIDE)
  ) unit (
      .clk, .rst, .enable, .in_valid, .in_data, .in_bytes,
      .bounded(layout_now[4]), .bound_bits(layout_now[3:0]),
      .in_side({in_last, in_total, in_sum, layout_now, in_truncated}),
      .out_valid(burst_valid), .out_burst(burst), .out_bytes(burst_bytes),
      .out_side({burst_last, burst_total, burst_sum, burst_layout, burst_truncated}));

  logic aligner_ready, truncated;
  logic [15:0] total;
  assign enable = !burst_valid || aligner_ready;
  alignment_unit #(
      .SIDE(1 + 16 + 16)
  ) aligner (
      .clk, .rst, .in_valid(burst_valid), .in_ready(aligner_ready), .in_burst(burst),
      .in_bytes(burst_bytes), .in_last(burst_last),
      .in_head({3'd0, burst_layout, burst_total}),
      .in_side({burst_truncated, burst_total, burst_sum}),
      .out_valid, .out_ready, .out_word(out_data), .out_last, .out_bytes,
      .out_side({truncated, total, in_sum_again}));
  assign out_ok = !truncated && out_bytes < total;

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && in_valid) a_bound : assert (layout_now[3:0] != 4'd0) else $error("the bound is 2^0");
  end
`endif
endmodule
